// What Material for MkDocs leaves out for people who use a keyboard or a screen reader.
document$.subscribe(() => {
  document.querySelector(".md-search").setAttribute("aria-label", "Search");
  for (const region of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
    if (region.scrollWidth > region.clientWidth) region.tabIndex = 0;
  }
});
