// Browsers refuse to load a web worker from a file. There, the search runs in a hidden frame. Material for MkDocs would
// load its own replacement from elsewhere.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const scope = frame.contentWindow;
      scope.document.open();
      scope.document.write("<!doctype html><title>search</title><body>");
      scope.document.close();
      const load = url => new Promise((resolve, reject) => {
        const script = scope.document.createElement("script");
        Object.assign(script, { src: url, onload: resolve, onerror: reject });
        scope.document.body.append(script);
      });
      scope.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      scope.importScripts = (...urls) => urls.reduce((done, url) => done.then(() => load(url)), Promise.resolve());
      const loaded = load(url);
      this.postMessage = data => loaded.then(() => scope.dispatchEvent(new scope.MessageEvent("message", { data })));
      this.terminate = () => frame.remove();
    }
  };
}
