/* The page: input, heads, concatenation and output projection, with lines between them. */

const data = JSON.parse(document.getElementById("header").textContent);
const at = (id) => document.getElementById(id);
const tokens = data.tokens.map((token, i) => {
  const name = printable(token);
  return data.tokens.filter((other) => printable(other) === name).length > 1 ? name + " (" + i + ")" : name;
});
const dims = data.input[0].map((_, j) => "x" + j);
const columns = data.w_q[0][0].map((_, j) => String(j));
const joined = data.kv_heads.flatMap((_, head) => columns.map((column) => head + "." + column));
const tell = (words) => { at("readout").textContent = words; };
const editables = [];
const shows = [];
let found = null;

function change(spec, rows, names, start) {
  const made = editable(spec, rows, names, start, recompute, tell);
  editables.push(made);
  return made;
}

/* `pick` takes the matrix out of everything that was computed. */
function follow(spec, rows, names, pick, why) {
  const made = computed(spec, rows, names, why, tell);
  shows.push(() => made.show(pick(found)));
  return made.table;
}

const column = (matrix, j) => matrix.map((row) => row[j]);
const input = change({ id: "input", name: "X" }, tokens, dims, data.input);
const wK = data.w_k.map(() => null);
const wV = data.w_v.map(() => null);

/* The matrices of a KV head stand with the first query head that reads it; the others show whose they are. */
function shared(kept, kind, kv, start) {
  if (kept[kv]) return null;
  kept[kv] = change({ id: kind + "/" + kv, name: kind === "w_k" ? "W_K" : "W_V" }, dims, columns, start[kv]);
  return kept[kv].table;
}

function headBox(kv, head) {
  const of = (step) => (all) => all.heads[head][step];
  const steps = () => found.heads[head];
  const wQ = change({ id: "w_q/" + head, name: "W_Q" }, dims, columns, data.w_q[head]);
  const owned = [shared(wK, "w_k", kv, data.w_k), shared(wV, "w_v", kv, data.w_v)].filter(Boolean);
  const borrowed = make("p", { class: "quiet" }, "W_K and W_V are those of KV head " + kv + ", which stand with head " + data.kv_heads.indexOf(kv) + ".");
  const projected = [["query", "Q", "X W_Q", () => wQ], ["key", "K", "X W_K", () => wK[kv]], ["value", "V", "X W_V", () => wV[kv]]].map(
    ([step, name, formula, weights]) => follow(
      { id: step + "/" + head, name, formula }, tokens, columns, of(step),
      (i, j) => workedOut(input.numbers[i], column(weights().numbers, j), steps()[step][i][j]),
    ),
  );
  const looking = [
    follow({ id: "scores/" + head, name: "scores", formula: "Q Kᵀ" }, tokens, tokens, of("scores"),
      (i, j) => workedOut(steps().query[i], steps().key[j], steps().scores[i][j])),
    follow({ id: "masked/" + head, name: "scaled", formula: "scores / √" + columns.length + "; · where masked" }, tokens, tokens, of("masked"),
      (i, j) => (steps().masked[i][j] === -Infinity ? "hidden: a later token" : shown(steps().scores[i][j]) + " / " + shown(Math.sqrt(columns.length)) + " = " + shown(steps().scaled[i][j]))),
    follow({ id: "weights/" + head, name: "weights", formula: "softmax of each row", bars: true }, tokens, tokens, of("weights"),
      (i, j) => "exp(" + shown(steps().masked[i][j]) + ") / (" + steps().masked[i].filter(Number.isFinite).map((score) => "exp(" + shown(score) + ")").join(" + ") + ") = " + shown(steps().weights[i][j])),
  ];
  const output = follow({ id: "output/" + head, name: "head output", formula: "weights V" }, tokens, columns, of("output"),
    (i, j) => workedOut(steps().weights[i], column(steps().value, j), steps().output[i][j]));
  const box = make("section", { class: "box", id: "box-head-" + head, "aria-labelledby": "heading-head-" + head },
    make("h2", { id: "heading-head-" + head }, "Head " + head + (data.w_k.length < data.kv_heads.length ? ", KV head " + kv : "")),
    make("div", { class: "row" }, wQ.table, ...(owned.length ? owned : [borrowed])),
    ...[projected, looking.slice(0, 2), [looking[2], output]].map((row) => make("div", { class: "row" }, ...row)),
  );
  at("heads").append(box);
  return wQ;
}

at("box-input").append(input.table);
const wQ = data.kv_heads.map(headBox);
at("box-concatenated").append(follow({ id: "concatenated", name: "concatenated", formula: "head outputs side by side" }, tokens, joined,
  (all) => all.concatenated, (i, j) => "column " + joined[j].split(".")[1] + " of head " + joined[j].split(".")[0] + " = " + shown(found.concatenated[i][j])));
const wO = change({ id: "w_o", name: "W_O" }, joined, dims, data.w_o);
at("box-output").append(make("div", { class: "row" }, wO.table, follow({ id: "output", name: "output", formula: "concatenated W_O" }, tokens, dims,
  (all) => all.output, (i, j) => workedOut(found.concatenated[i], column(wO.numbers, j), found.output[i][j]))));

function recompute() {
  const numbers = { input: input.numbers, w_q: wQ.map((one) => one.numbers), w_k: wK.map((one) => one.numbers), w_v: wV.map((one) => one.numbers), w_o: wO.numbers };
  found = attention(numbers, data.kv_heads, at("causal").checked);
  shows.forEach((show) => show());
}

/* From the lower edge of one box to the upper edge of the next. */
function drawLines() {
  const frame = at("flow").getBoundingClientRect();
  const place = (id) => at(id).getBoundingClientRect();
  const heads = data.kv_heads.map((_, head) => "box-head-" + head);
  const pairs = [...heads.map((head) => ["box-input", head]), ...heads.map((head) => [head, "box-concatenated"]), ["box-concatenated", "box-output"]];
  at("lines").replaceChildren(...pairs.map(([from, to]) => {
    const [above, below] = [place(from), place(to)];
    const [x1, y1] = [above.left + above.width / 2 - frame.left, above.bottom - frame.top];
    const [x2, y2] = [below.left + below.width / 2 - frame.left, below.top - frame.top];
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    line.setAttribute("d", "M" + x1 + " " + y1 + "C" + x1 + " " + (y1 + 24) + " " + x2 + " " + (y2 - 24) + " " + x2 + " " + y2);
    return line;
  }));
}

at("title").textContent = data.title;
at("sizes").textContent = data.sizes;
at("foot").textContent = data.foot;
at("causal").checked = data.causal;
at("causal").addEventListener("change", recompute);
at("reset").addEventListener("click", () => {
  editables.forEach((one) => one.reset());
  at("causal").checked = data.causal;
  recompute();
});
recompute();
new ResizeObserver(drawLines).observe(at("flow"));
drawLines();
document.documentElement.dataset.drawn = "yes";
