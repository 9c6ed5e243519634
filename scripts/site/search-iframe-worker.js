// What the search of Material for MkDocs needs to find options and whole lines of a log, and to work in a file.

// Browsers refuse to load a web worker from a file: there, the search runs in a hidden frame. Material would load its own
// replacement from elsewhere, unless the name of this script contained "iframe-worker".
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    const scope = frame.contentWindow;
    scope.document.open();
    scope.document.write("<!doctype html><title>search</title><body>");
    scope.document.close();
    const load = source => new Promise((resolve, reject) => {
      const script = scope.document.createElement("script");
      Object.assign(script, { src: source, onload: resolve, onerror: reject });
      scope.document.body.append(script);
    });
    scope.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
    scope.importScripts = (...urls) => urls.reduce((done, url) => done.then(() => load(url)), Promise.resolve());
    this.send = data => scope.dispatchEvent(new scope.MessageEvent("message", { data }));
    this.loaded = load(url);
  }

  postMessage(data) {
    this.loaded.then(() => this.send(data));
  }
}
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = IFrameWorker;
}

// The search takes "-" before a word for "without", and "ValueError:" for the name of a field. Of an option, all words
// must be found but the last, which may be incomplete, and short ones, which the index leaves out.
const OPTION = /^-*\w+(-\w+)*-?$/;
const OPERATORS = /[*+:^~"]|(?<!\S)-+/g;
// Chinese text is cut into the words of the index, but never at its end, unless another character follows.
const CHINESE = /\p{sc=Han}{2,}/gu;
const QUERY = 2; // the type of a message
const required = (word, index, words) => (index < words.length - 1 && word.length > 2 ? `+${word}` : word);
window.Worker = class extends window.Worker {
  postMessage(message) {
    if (message.type === QUERY) {
      const query = message.data.trim();
      message.data = OPTION.test(query)
        ? query.match(/\w+/g).map(required).join(" ")
        : query.replace(OPERATORS, " ").replace(CHINESE, "$& $&\u4e00");
    }
    super.postMessage(message);
  }
};
