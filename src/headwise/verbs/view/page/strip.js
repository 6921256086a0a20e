/* Tokens set like text, each one pointed at, focused, and given ink. */
function Strip(host, tokens, grid, told) {
  // grid: [rows, columns] of the patches that the last tokens are, or null; told: {point(token), pin(token)}
  const LINE = 32;
  const spans = [];
  let inked = [];
  let marked = null;
  let focusable = 0;

  function build(label) {
    host.setAttribute("role", "listbox");
    host.setAttribute("aria-orientation", "horizontal");
    host.setAttribute("aria-label", label);
    host.dir = Words.direction(tokens);
    if (Words.keepsColumns(tokens)) host.classList.add("columns");
    tokens.forEach((token, index) => {
      const span = Words.element("span", "token");
      span.setAttribute("role", "option");
      span.setAttribute("aria-selected", "false");
      span.tabIndex = -1;
      span.dataset.token = index;
      for (const piece of Words.pieces(token)) {
        span.append(piece.pale ? Words.element("span", "pale", piece.text) : piece.text);
      }
      spans.push(span);
    });
    const words = grid ? spans.slice(0, spans.length - grid[0] * grid[1]) : spans;
    host.append(...words);
    if (grid) host.append(Patches.grid(spans.slice(words.length), tokens.slice(words.length), grid));
    spans[0].tabIndex = 0;
    host.addEventListener("pointerover", (event) => told.point(tokenAt(event)));
    host.addEventListener("pointerleave", () => told.point(null));
    host.addEventListener("click", (event) => { if (tokenAt(event) !== null) told.pin(tokenAt(event)); });
    host.addEventListener("focusin", (event) => { if (event.target.matches(":focus-visible")) told.point(tokenAt(event)); });
    host.addEventListener("focusout", () => told.point(null));
    host.addEventListener("keydown", walk);
  }

  function tokenAt(event) {
    const span = event.target.closest(".token");
    return span ? Number(span.dataset.token) : null;
  }

  function walk(event) {
    const forward = host.dir === "rtl" ? "ArrowLeft" : "ArrowRight";
    const back = host.dir === "rtl" ? "ArrowRight" : "ArrowLeft";
    const down = grid ? grid[1] : 1;
    const moves = { [forward]: 1, ArrowDown: down, [back]: -1, ArrowUp: -down, Home: -Infinity, End: Infinity };
    const token = tokenAt(event);
    if (event.key in moves) {
      const next = Math.min(spans.length - 1, Math.max(0, token + moves[event.key]));
      spans[next].focus();
    } else if (event.key === "Enter" || event.key === " ") told.pin(token);
    else if (event.key === "Escape") told.pin(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  function clear() {
    for (const span of inked) {
      span.style.backgroundColor = "";
      span.style.color = "";
      span.classList.remove("inked");
    }
    inked = [];
    if (marked) marked.classList.remove("query");
    marked = null;
  }

  /* Gives ink to the tokens of `links`; `full` is the weight that takes all of it. */
  function ink(links, full) {
    for (const { token, weight } of links) {
      const share = weight / full;
      if (share < 1 / 255) continue;
      const span = spans[token];
      span.style.backgroundColor = Ink.colour(share);
      span.style.color = Ink.wordsOn(share);
      span.classList.add("inked");
      inked.push(span);
    }
  }

  /* Underlines the token whose weights are shown; the tabulator key leads to it. */
  function mark(token) {
    marked = spans[token];
    marked.classList.add("query");
    spans[focusable].tabIndex = -1;
    focusable = token;
    marked.tabIndex = 0;
  }

  /* Marks what is pinned; separate from drawing, which follows the pointer. */
  function pinned(token) {
    const old = host.querySelector('[aria-selected="true"]');
    if (old) old.setAttribute("aria-selected", "false");
    if (token === null) return;
    spans[token].setAttribute("aria-selected", "true");
    const [top, bottom] = [spans[token].offsetTop - host.offsetTop, host.clientHeight];
    if (old !== spans[token] && (top < host.scrollTop || top + LINE > host.scrollTop + bottom)) host.scrollTop = top - bottom / 2;
  }

  return { build, clear, ink, mark, pinned };
}
