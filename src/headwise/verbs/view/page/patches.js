/* An image's patches among the tokens: the last ones, row by row; before them may stand a class token and others. */
const Patches = (function () {
  const LARGEST = 32;          // pixels of a patch
  const WIDE = 480;            // pixels of the image

  /* The tokens with each patch named by its row and column, counted from 0. */
  function named(tokens, [rows, columns]) {
    const before = tokens.length - rows * columns;
    return tokens.map((token, i) => {
      if (i < before) return token;
      const patch = [Math.floor((i - before) / columns), (i - before) % columns];
      return { ...token, kind: "text", text: patch.join(","), patch };
    });
  }

  /* The one in the middle of the image. */
  function middle(tokens, [rows, columns]) {
    return tokens.length - rows * columns + Math.floor(rows / 2) * columns + Math.floor(columns / 2);
  }

  /* The image as a grid of `spans`, one a patch. */
  function grid(spans, tokens, [, columns]) {
    const host = Words.element("div", "patches");
    host.style.setProperty("--columns", columns);
    host.style.setProperty("--patch", Math.max(8, Math.min(LARGEST, Math.floor(WIDE / columns))) + "px");
    spans.forEach((span, i) => {
      const [row, column] = tokens[i].patch;
      span.className = "token patch";
      span.textContent = "";
      span.setAttribute("aria-label", "patch in row " + row + ", column " + column);
    });
    host.append(...spans);
    return host;
  }

  return { named, middle, grid };
})();
