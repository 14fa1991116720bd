// The search of the site accepts questions. Sphinx needs all words of a query on one page and orders pages by their
// best word. Here, the score of a page is the fraction of the words of the query that it contains (rare words have more
// weight), plus the score of its most similar heading. The result links to this heading.

(() => {
  const OF_HEADING = 2; // a heading that is the query counts as much as twice all of its words in the text
  const MIN_LIKENESS = 0.3; // of a heading, for a result to lead to it rather than to the page
  const LOW_PAGES = /^repository\//; // files of the repository, after the pages of the site

  const asList = (files) => (files === undefined ? [] : [].concat(files));

  function performTermsSearch(searchTerms, excludedTerms) {
    const { terms, titleterms, alltitles, docnames, filenames, titles } = Search._index;
    const stemmer = new Stemmer();
    const pagesIn = (table, word) => (Object.hasOwn(table, word) ? asList(table[word]) : []);
    const pagesWith = (word) => new Set([...pagesIn(terms, word), ...pagesIn(titleterms, word)]);
    const weights = new Map();
    const weightOf = (word) => {
      if (!weights.has(word)) weights.set(word, Math.log(1 + docnames.length / (1 + pagesWith(word).size)));
      return weights.get(word);
    };
    const sum = (words) => [...words].reduce((total, word) => total + weightOf(word), 0);

    const best = new Map(); // of each page: its heading that is most like the query
    for (const [heading, places] of Object.entries(alltitles)) {
      const real = splitQuery(heading.toLowerCase()).filter((word) => !stopwords.has(word));
      const words = new Set(real.map((word) => stemmer.stemWord(word)));
      const common = sum([...words].filter((word) => searchTerms.has(word)));
      const likeness = common / Math.sqrt(sum(words) * sum(searchTerms) || 1);
      for (const [page, anchor] of places) {
        if (likeness > (best.get(page)?.likeness ?? 0)) best.set(page, { likeness, heading, anchor });
      }
    }

    const shares = new Map(docnames.map((_, page) => [page, 0]));
    for (const word of searchTerms)
      for (const page of pagesWith(word)) shares.set(page, shares.get(page) + weightOf(word) / sum(searchTerms));
    for (const word of excludedTerms) for (const page of pagesWith(word)) shares.delete(page);
    return [...shares]
      .filter(([page, share]) => share > 0 || best.has(page))
      .map(([page, share]) => {
        const { likeness = 0, heading, anchor } = best.get(page) ?? {};
        const leads = likeness >= MIN_LIKENESS && anchor !== null;
        const low = LOW_PAGES.test(docnames[page]) ? 0.5 : 1;
        return [
          docnames[page],
          leads ? `${titles[page]} > ${heading}` : titles[page],
          leads ? `#${anchor}` : "",
          null,
          10 * low * (share + OF_HEADING * likeness),
          filenames[page],
          SearchResultKind.text,
        ];
      });
  }

  // before the listener of searchtools.js, which this file is loaded before
  document.addEventListener("DOMContentLoaded", () => {
    if (typeof Search !== "undefined") Search.performTermsSearch = performTermsSearch;
  });
})();
