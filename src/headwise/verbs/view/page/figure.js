/* A picture to take away: SVG with real vectors, and the same as PNG. It has the colours of the page as it stands. */
const Figure = (function () {
  const MARGIN = 24;
  const LINE = 20;
  const VECTORS_UP_TO = 128 * 128;   // cells; more are embedded as an image of one pixel a cell, enlarged unblurred
  const SCALE = 2;                   // of the PNG
  const ruler = document.createElement("canvas").getContext("2d");

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const { make } = Axis;

  /* An element of the page's own drawings, with what the style sheet gives it written on it. */
  function dressed(element) {
    const copy = element.cloneNode(true);
    for (const text of [copy, ...copy.querySelectorAll("text")].filter((one) => one.nodeName === "text")) {
      const chosen = text.classList.contains("chosen");
      text.setAttribute("fill", style(chosen ? "--words" : "--quiet"));
      if (chosen) text.setAttribute("font-weight", "700");
      if (text.classList.contains("title")) text.setAttribute("font-family", style("--sans"));
    }
    for (const one of [copy, ...copy.querySelectorAll("*")]) {
      for (const name of ["class", "data-row", "data-column", "data-token"]) one.removeAttribute(name);
    }
    return copy;
  }

  function words(text, x, y, attributes = {}) {
    return make("text", { x, y, fill: style("--words"), ...attributes }, text);
  }

  /* Steps of ink as cells in a rectangle. */
  function cells(steps, columns, rows, x, y, width, height) {
    if (columns * rows > VECTORS_UP_TO) return embedded(Ink.image(steps, columns, rows), x, y, width, height);
    const group = make("g", { "shape-rendering": "crispEdges", transform: "translate(" + x + " " + y + ") scale(" + width / columns + " " + height / rows + ")" });
    const paths = new Map();
    for (let row = 0; row < rows; row++) {
      for (let start = 0, end; start < columns; start = end) {
        const step = steps[row * columns + start];
        for (end = start + 1; end < columns && steps[row * columns + end] === step;) end++;
        const run = "M" + start + " " + row + "h" + (end - start) + "v1h" + (start - end) + "z";
        paths.set(step, (paths.get(step) ?? "") + run);
      }
    }
    for (const [step, d] of paths) group.append(make("path", { d, fill: Ink.colour(step / 255) }));
    return group;
  }

  function embedded(canvas, x, y, width, height) {
    return make("image", {
      x, y, width, height, href: canvas.toDataURL("image/png"), preserveAspectRatio: "none", "image-rendering": "pixelated",
    });
  }

  function wrapped(text, width) {
    const lines = [""];
    for (const word of text.split(" ")) {
      const last = lines[lines.length - 1];
      if (last && ruler.measureText(last + " " + word).width > width) lines.push(word);
      else lines[lines.length - 1] = last ? last + " " + word : word;
    }
    return lines;
  }

  /* The whole picture: `parts` in a box of {x, y, width, height}, and under it the caption's paragraphs. */
  function drawn(box, parts, caption) {
    ruler.font = style("--small") + " " + style("--sans");
    const width = Math.ceil(Math.max(box.width, 400));
    const lines = caption.flatMap((paragraph) => wrapped(paragraph, width));
    const full = { width: width + 2 * MARGIN, height: Math.ceil(box.height + 3 * MARGIN + lines.length * LINE) };
    const svg = make("svg", {
      ...full, viewBox: "0 0 " + full.width + " " + full.height, "font-family": style("--mono"), "font-size": style("--small"),
    });
    const inside = make("g", { transform: "translate(" + (MARGIN - box.x) + " " + (MARGIN - box.y) + ")" });
    inside.append(...parts);
    const below = lines.map((line, i) => words(line, MARGIN, box.height + 2 * MARGIN + (i + 1) * LINE - 4, { "font-family": style("--sans") }));
    svg.append(make("title", {}, caption[0]), make("rect", { ...full, fill: style("--paper") }), inside, ...below);
    return svg;
  }

  const written = (svg) => new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" });

  /* The same picture in pixels, two to each of the page's. */
  async function pixels(svg) {
    const address = URL.createObjectURL(written(svg));
    try {
      const image = new Image();
      image.src = address;
      await image.decode();
      const canvas = document.createElement("canvas");
      canvas.width = SCALE * svg.getAttribute("width");
      canvas.height = SCALE * svg.getAttribute("height");
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      return await new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
    } finally {
      URL.revokeObjectURL(address);
    }
  }

  return { dressed, words, cells, embedded, drawn, written, pixels, style };
})();
