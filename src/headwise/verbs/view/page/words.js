/* How tokens and numbers are written. Nothing a token contains may act: it is only ever text, and
   characters that cannot be seen, or that turn the writing round, are spelled out. */
const Words = (function () {
  // Controls, lone surrogates, characters made to be ignored (zero-width, bidi), line and paragraph separators.
  const UNSEEN = /[\p{Cc}\p{Cs}\p{DI}\u2028\u2029\ufff9-\ufffb]/u;
  const SELECTOR = /[\ufe00-\ufe0f]/u;
  const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/u;
  const LETTER = /\p{L}/u;
  const LONGEST_LABEL = 14;

  function codePoint(character) {
    const number = character.codePointAt(0).toString(16).toUpperCase();
    return "⟨U+" + number.padStart(4, "0") + "⟩";
  }

  /* The token in pieces {text, pale}: pale pieces stand for something, plain pieces are the text itself. */
  function pieces(token) {
    const found = [];
    const add = (text, pale) => {
      const last = found[found.length - 1];
      if (last && last.pale === pale) last.text += text;
      else found.push({ text, pale });
    };
    const whole = token.kind !== "text";
    let previous = "";
    for (const character of token.text) {
      if (character === "\n") { add("↵", true); add("\n", false); }
      else if (character === "\t") add("\t", whole);
      else if (SELECTOR.test(character) && previous) add(character, whole);
      else if (UNSEEN.test(character)) add(codePoint(character), true);
      else add(character, whole);
      previous = character;
    }
    if (!found.length) add("⟨⟩", true);
    return found;
  }

  /* One short line for axes, bars and sentences: no outer spaces, blanks made visible, a long token cut. */
  function label(token) {
    let text = spelled(token);
    const trimmed = text.trim();
    text = trimmed || "␣".repeat(Math.min(text.length, 4));
    if (/^\p{M}/u.test(text)) text = "◌" + text;
    const characters = [...text];
    return characters.length > LONGEST_LABEL ? characters.slice(0, LONGEST_LABEL - 1).join("") + "…" : text;
  }

  /* The token on one line, whole, with its spaces. */
  function spelled(token) {
    return pieces(token).map((piece) => piece.text).join("").replace(/\n/gu, "").replace(/\t/gu, "⇥");
  }

  /* The direction of the first letter decides, as for a paragraph. */
  function direction(tokens) {
    for (const token of tokens) {
      if (token.kind !== "text") continue;
      const letter = LETTER.exec(token.text);
      if (letter) return RIGHT_TO_LEFT.test(letter[0]) ? "rtl" : "ltr";
    }
    return "ltr";
  }

  /* Lines that begin with white space are code, or set as carefully: columns are kept. */
  function keepsColumns(tokens) {
    return /\n(?: {2}|\t)/u.test(tokens.map((token) => token.text).join(""));
  }

  /* Three significant digits. */
  function digits(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    if (value === 0) return "0";
    if (Math.abs(value) >= 999.5) return Math.round(value).toLocaleString("en-US");
    if (Math.abs(value) < 0.001) return value.toExponential(2);
    return value.toPrecision(3);
  }

  /* A weight; of one kept in 8 bits three digits would be invented below a thousandth. */
  function weight(value, exact) {
    if (!(value > 0)) return "0";
    if (exact) return digits(Math.min(value, 1));
    return value < 0.001 ? "<0.001" : Math.min(value, 1).toPrecision(3);
  }

  /* A difference, with its sign. */
  const signed = (value) => (value > 0 ? "+" : "") + digits(value);

  /* Digits padded so that the points of a column stand under each other in a monospaced face. */
  function aligned(value) {
    const text = digits(value);
    const point = text.indexOf(".");
    return text.padStart(text.length + Math.max(0, 4 - (point < 0 ? text.length : point)), " ");
  }

  function count(number, word) {
    return number.toLocaleString("en-US") + " " + word + (number === 1 ? "" : "s");
  }

  /* "3", "3 and 4", "3, 4 and 5" */
  function list(items) {
    if (items.length < 2) return items.join("");
    return items.slice(0, -1).join(", ") + " and " + items[items.length - 1];
  }

  function element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  /* How much a run looks at. */
  function size(run) {
    const image = run.grid ? "an image of " + run.grid.join(" × ") + " patches" : "";
    if (run.crossed) return count(run.queries.length, "token") + " looking at " + (image || count(run.keys.length, "token"));
    return image || count(run.queries.length, "token");
  }

  const PARTS = {
    encoder: "the encoder's self-attention, looks both ways",
    decoder: "the decoder's self-attention, causal",
    cross: "cross attention, from decoder to encoder",
  };

  /* Which attention of a run is shown, and which way it looks. */
  function attention({ header, crossed }) {
    if (header.part) return PARTS[header.part];
    return crossed ? "looks at another text" : header.model.causal ? "causal" : "looks both ways";
  }

  /* A path of a module in a model, which is text as little to be trusted as a token. */
  const path = (name) => spelled({ text: name, kind: "text" });

  /* Which keys of a row are known where not all are; `choice` as the header has it. */
  function kept({ always, at_most: most, from_weight: from }) {
    if (always === most) return "the " + most + " largest keys of each row";
    const heavy = "up to " + most + " keys that weigh " + digits(from) + " or more";
    return "of each row " + (always ? "the " + (always > 1 ? always + " largest keys" : "largest key") + ", and " : "") + heavy;
  }

  const sentence = (text) => text[0].toUpperCase() + text.slice(1);

  return { pieces, label, spelled, direction, keepsColumns, digits, signed, weight, kept, size, attention, path, sentence, aligned, count, list, element };
})();
