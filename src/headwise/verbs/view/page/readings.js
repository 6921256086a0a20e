/* The numbers beside the matrix: the row of the chosen token, the head's statistics, the heads of the same KV head. */
const Readings = (function () {
  const { header } = Data;
  const profile = document.getElementById("profile");
  const profileHeading = document.getElementById("profile-heading");
  const body = document.querySelector("#statistics tbody");
  const tokenColumn = document.querySelector("#statistics thead th:last-child");
  const siblings = document.getElementById("siblings");
  const siblingsHeading = document.getElementById("siblings-heading");
  const IN_ORDER_UP_TO = 14;   // tokens listed in the order of the text; beyond it the largest come first
  const LISTED = 12;
  const ROUGH = 0.02;          // of a row; what is left below this is coarse in 8 bits

  function bar(name, weight, muted) {
    const row = Words.element("div", muted ? "reading muted" : "reading");
    row.setAttribute("role", "row");
    const track = Words.element("span", "track");
    const fill = Words.element("span", "fill");
    fill.style.width = 100 * Math.min(1, weight ?? 0) + "%";
    track.append(fill);
    const parts = [
      Words.element("span", "piece", name), track,
      Words.element("span", "number", weight === null ? "" : Words.weight(weight)),
    ];
    parts[0].setAttribute("role", "rowheader");
    parts[2].setAttribute("role", "cell");
    track.setAttribute("aria-hidden", "true");
    row.append(...parts);
    return row;
  }

  function row(state, head) {
    const links = head.links(state.token, state.direction, state.discount);
    const from = state.direction === "from";
    profileHeading.replaceChildren(
      Words.element("span", "piece", Axis.labels[state.token]),
      " token " + state.token + (from ? " looks at" : " is looked at by"),
    );
    const sorted = [...links].sort((a, b) => b.weight - a.weight);
    const rows = header.seq_len <= IN_ORDER_UP_TO ? inOrder(links) : largest(sorted, head);
    if (head.sinks) rows.unshift(bar("learned sink", from ? head.sink(state.token) : null, !from));
    const notes = [];
    if (header.seq_len > IN_ORDER_UP_TO) notes.push(rest(sorted, head, from));
    if (from && state.discount) notes.push(remainder(head.left[state.token]));
    // Always there, so that what stands below keeps its place.
    profile.replaceChildren(...rows, Words.element("p", "quiet", notes.join(" ")));
  }

  /* How far the numbers of a row without its first token can be trusted. */
  function remainder(left) {
    if (left < Heads.LEAST_LEFT) return "Without the first token too little of this row is left to show.";
    if (left < ROUGH) return "Without the first token " + Words.weight(left) + " of this row is left: rough in 8 bits.";
    return "";
  }

  function inOrder(links) {
    const weights = new Map(links.map((link) => [link.token, link.weight]));
    return header.tokens.map((_, token) => bar(Axis.labels[token], weights.get(token) ?? null, !weights.has(token)));
  }

  function largest(sorted, head) {
    const places = head.full ? LISTED : head.kept;
    const shown = sorted.slice(0, places).map(({ token, weight }) => bar(Axis.labels[token], weight, false));
    while (shown.length < places) shown.push(bar("", null, true));
    return shown;
  }

  /* What the list leaves out. */
  function rest(sorted, head, from) {
    if (!head.full && from) return "The " + head.kept + " largest keys of the row.";
    if (!head.full) return "Rows that have this token among their " + head.kept + " largest keys: " + sorted.length + ".";
    const others = sorted.slice(LISTED);
    if (!others.length) return "";
    return Words.count(others.length, "other") + " together " + Words.weight(others.reduce((sum, link) => sum + link.weight, 0)) + ".";
  }

  function statistics(state, head) {
    tokenColumn.textContent = head.statistics.size ? "token" : "";
    const found = Data.head(state.layer, state.head);
    body.replaceChildren(...header.statistics.flatMap(({ key, label, unit, definition }) => {
      const line = Words.element("tr");
      const name = Words.element("th");
      name.scope = "row";
      name.append(label, " ", Words.element("span", "quiet", unit));
      const own = head.statistic(key, state.token);
      line.append(
        name,
        Words.element("td", "number", Words.aligned(found[key])),
        Words.element("td", "number", own === undefined ? "" : Words.aligned(own)),
      );
      const explained = Words.element("tr");
      const words = Words.element("td", "quiet definition", definition);
      words.colSpan = 3;
      explained.append(words);
      return [line, explained];
    }));
  }

  function group(state) {
    const { kv_head: kvHead } = Data.head(state.layer, state.head);
    const alike = header.heads.filter((one) => one.layer === state.layer && one.kv_head === kvHead);
    document.getElementById("siblings-part").hidden = alike.length < 2;
    siblingsHeading.textContent = "heads that read KV head " + kvHead;
    const cells = header.thumbnail_size;
    const row = Math.floor(document.getElementById("depth-zone").clientWidth / 3) - 16;
    const most = alike.length > 8 ? 64 : Math.min(120, row);
    const size = cells <= most ? Math.floor(most / cells) * cells : most;
    const made = alike.map(({ layer, head }) => {
      const button = Words.element("button", "sibling");
      button.type = "button";
      button.setAttribute("aria-pressed", String(head === state.head));
      const canvas = Words.element("canvas");
      const context = Ink.sized(canvas, size, size);
      Data.block("thumbnails/" + layer).then((thumbnails) => {
        MapInk.drawMap(context, thumbnails, head, 0, 0, canvas.width, state.discount);
      });
      button.append(canvas, Words.element("span", "number", "head " + head));
      button.addEventListener("click", () => State.pin({ layer, head }));
      return button;
    });
    const held = siblings.contains(document.activeElement);
    siblings.replaceChildren(...made);
    if (held) siblings.querySelector('[aria-pressed="true"]').focus();
  }

  return { row, statistics, group };
})();
