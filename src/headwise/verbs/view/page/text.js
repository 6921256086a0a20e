/* The text, set like text. The token pointed at is the query; the others take ink in proportion to weight. */
const Text = (function () {
  const { tokens } = Data.header;
  const host = document.getElementById("tokens");
  const line = document.getElementById("query-line");
  const LEAST_FULL = 0.25;     // full ink never means less than this, so that thin rows look thin
  const LINE = 32;
  const NAMED = 4;             // tokens named in the line under the text
  const spans = [];
  let inked = [];
  let marked = null;
  let focusable = 0;

  function build() {
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
    host.append(...spans);
    host.addEventListener("pointerover", (event) => point(tokenAt(event)));
    host.addEventListener("pointerleave", () => point(null));
    host.addEventListener("click", (event) => { if (tokenAt(event) !== null) State.pin({ token: tokenAt(event) }); });
    host.addEventListener("focusin", (event) => { if (event.target.matches(":focus-visible")) point(tokenAt(event)); });
    host.addEventListener("focusout", () => point(null));
    host.addEventListener("keydown", walk);
  }

  function tokenAt(event) {
    const span = event.target.closest(".token");
    return span ? Number(span.dataset.token) : null;
  }

  const point = (token) => State.point({ token });

  function walk(event) {
    const forward = host.dir === "rtl" ? "ArrowLeft" : "ArrowRight";
    const back = host.dir === "rtl" ? "ArrowRight" : "ArrowLeft";
    const moves = { [forward]: 1, ArrowDown: 1, [back]: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };
    const token = tokenAt(event);
    if (event.key in moves) {
      const next = Math.min(spans.length - 1, Math.max(0, token + moves[event.key]));
      spans[next].focus();
    } else if (event.key === "Enter" || event.key === " ") State.pin({ token });
    else if (event.key === "Escape") State.pin({ token: null });
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
  }

  /* Full ink stands for the largest weight shown; returned so that the line under the text can say it. */
  function draw(state, head) {
    clear();
    marked = spans[state.token];
    marked.classList.add("query");
    spans[focusable].tabIndex = -1;
    focusable = state.token;
    marked.tabIndex = 0;
    const links = head.links(state.token, state.direction, state.discount);
    const full = Math.max(LEAST_FULL, ...links.map((link) => link.weight));
    for (const { token, weight } of links) {
      const share = weight / full;
      if (share < 1 / 255) continue;
      const span = spans[token];
      span.style.backgroundColor = Ink.colour(share);
      span.style.color = Ink.wordsOn(share);
      span.classList.add("inked");
      inked.push(span);
    }
    say(state, head, links, full);
  }

  function say(state, head, links, full) {
    const lead = Words.element("span", "lead");
    lead.append(
      Words.element("span", "piece", Words.label(tokens[state.token])),
      " token " + state.token + (state.direction === "from" ? " looks at" : " is looked at by"),
    );
    const parts = [lead];
    const name = (text, weight) => {
      const pair = Words.element("span", "pair");
      pair.append(Words.element("span", "piece", text), " ", Words.element("span", "number quiet", Words.weight(weight)));
      parts.push(pair);
    };
    const largest = [...links].sort((a, b) => b.weight - a.weight).slice(0, NAMED);
    for (const { token, weight } of largest) name(Words.label(tokens[token]), weight);
    if (!largest.length) parts.push(Words.element("span", "pair", "no token"));
    const sink = state.direction === "from" ? head.sink(state.token) : 0;
    if (sink > 0) name("learned sink", sink);
    parts.push(Words.element("span", "quiet", "full ink = " + Words.weight(full)));
    line.replaceChildren(...parts);
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

  return { build, draw, pinned };
})();
