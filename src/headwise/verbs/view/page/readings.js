/* The numbers beside the matrix: the row of the chosen token, and the head's statistics. */
function Readings(run) {
  const profile = run.part("profile");
  const profileHeading = run.part("profile-heading");
  const table = run.part("statistics");
  const body = table.querySelector("tbody");
  const tokenColumn = table.querySelector("thead th:last-child");
  const IN_ORDER_UP_TO = 14;   // tokens listed in the order of the text; beyond it the largest come first
  const LISTED = 12;
  const LISTED_KEYS = 8;       // the same where a row is known by its largest keys
  const ROUGH = 0.02;          // of a row; what is left below this is coarse in 8 bits
  let shown = [];              // the row as it stands: [{name, weight, muted}]

  function bar({ name, weight, exact, muted }) {
    const row = Words.element("div", muted ? "reading muted" : "reading");
    row.setAttribute("role", "row");
    const track = Words.element("span", "track");
    const fill = Words.element("span", "fill");
    fill.style.width = 100 * Math.min(1, weight ?? 0) + "%";
    track.append(fill);
    const parts = [
      Words.element("span", "piece", name), track,
      Words.element("span", "number", weight === null ? "" : Words.weight(weight, exact)),
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
    const labels = Axis.along(from ? run.keys : run.queries).labels;
    profileHeading.replaceChildren(
      Words.element("span", "piece", Axis.along(State.tokensOf(run, state.direction)).labels[state.token]),
      " token " + state.token + (from ? " looks at" : " is looked at by"),
    );
    const sorted = [...links].sort((a, b) => b.weight - a.weight);
    const ordered = labels.length <= IN_ORDER_UP_TO;
    shown = ordered ? inOrder(links, labels) : largest(sorted, head, labels);
    if (head.sinks) shown.unshift({ name: "learned sink", weight: from ? head.sink(state.token) : null, muted: !from });
    const notes = [];
    if (!ordered) notes.push(rest(sorted, head, from, state.token));
    if (from && state.discount) notes.push(remainder(head.left[state.token], head.isExact(state.token)));
    if (from && head.isExact(state.token) && !head.exact) notes.push("As computed, not in 8 bits.");
    // Always there, so that what stands below keeps its place.
    profile.replaceChildren(...shown.map(bar), Words.element("p", "quiet", notes.join(" ")));
  }

  /* How far the numbers of a row without its first token can be trusted. */
  function remainder(left, exact) {
    if (left < Heads.LEAST_LEFT) return "Without the first token too little of this row is left to show.";
    if (left < ROUGH && !exact) return "Without the first token " + Words.weight(left) + " of this row is left: rough in 8 bits.";
    return "";
  }

  function inOrder(links, labels) {
    const known = new Map(links.map((link) => [link.token, link]));
    return labels.map((name, token) => ({
      name, weight: known.get(token)?.weight ?? null, exact: known.get(token)?.exact, muted: !known.has(token),
    }));
  }

  function largest(sorted, head, labels) {
    const places = head.full ? LISTED : Math.max(LISTED_KEYS, head.choice.at_most);
    const found = sorted.slice(0, places).map(({ token, weight, exact }) => ({ name: labels[token], weight, exact, muted: false }));
    while (found.length < places) found.push({ name: "", weight: null, muted: true });
    return found;
  }

  /* What the list leaves out. */
  function rest(sorted, head, from, token) {
    if (!head.full && !from) return "Rows of which this token's weight is carried: " + sorted.length + ".";
    if (from && !head.complete(token)) return Words.sentence(Words.kept(head.choice)) + ".";
    const others = sorted.slice(shown.length);
    if (!others.length) return "";
    return Words.count(others.length, "other") + " together " + Words.weight(others.reduce((sum, link) => sum + link.weight, 0)) + ".";
  }

  /* The line between what this text shows of the head and what other tokens show of it. */
  function scoresBegin(read) {
    const line = Words.element("tr");
    const heading = Words.element("th", "scored", "Scores on " + read + ", not on this text");
    heading.scope = "rowgroup";
    heading.colSpan = 3;
    line.append(heading);
    return line;
  }

  function statistics(state, head) {
    tokenColumn.textContent = head.statistics.size ? "token" : "";
    const found = run.head(state.layer, state.head);
    body.replaceChildren(...run.measures.flatMap(({ key, label, unit, definition, read }, i) => {
      const before = read && !run.measures[i - 1]?.read ? [scoresBegin(read)] : [];
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
      return [...before, line, explained];
    }));
  }

  return { row, statistics, heading: () => profileHeading.textContent, shown: () => shown };
}
