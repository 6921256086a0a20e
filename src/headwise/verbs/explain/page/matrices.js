/* Matrices as tables: numbers that can be changed, and computed ones that say where they come from. */

const DIGITS = 4;
const TERMS = 6;
const LARGEST = 1e6; /* products of four such numbers stay far from infinity */

/* Control characters and the like as what they are, so that no name can steer the page. */
function printable(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (one) => "⟨U+" + one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "⟩");
}

function shown(number) {
  if (number === -Infinity) return "·";
  if (!Number.isFinite(number)) return String(number);
  const rounded = number.toFixed(DIGITS);
  return Number(rounded) === 0 ? (0).toFixed(DIGITS) : rounded;
}

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/* left and right are rows of numbers: "0.5000 x 1.0000 + ... = 0.5000". */
function workedOut(left, right, result) {
  const terms = left.slice(0, TERMS).map((one, k) => shown(one) + " x " + shown(right[k]));
  if (left.length > TERMS) terms.push("... (" + (left.length - TERMS) + " more)");
  return terms.join(" + ") + " = " + shown(result);
}

/* A figure with a table of cells; `cell(i, j)` makes what stands in a cell's td. */
function figure(spec, rows, columns, cell) {
  const shape = make("span", { class: "quiet" }, "  [" + rows.length + ", " + columns.length + "]  " + (spec.formula ?? ""));
  const head = make("tr", {}, make("td"), ...columns.map((name) => make("th", { scope: "col" }, name)));
  const body = rows.map((name, i) => make("tr", {}, make("th", { scope: "row" }, name), ...columns.map((_, j) => cell(i, j))));
  return make(
    "figure", { "data-name": spec.id },
    make("figcaption", {}, make("b", {}, spec.name), shape),
    make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)),
  );
}

/* Numbers that can be changed; `changed` is called after each change. What is no number leaves the last one. */
function editable(spec, rows, columns, start, changed, tell) {
  const numbers = start.map((row) => [...row]);
  const inputs = [];
  const table = figure(spec, rows, columns, (i, j) => {
    const input = make("input", { type: "number", step: "0.1", "aria-label": spec.name + ", row " + rows[i] + ", column " + columns[j] });
    input.value = String(numbers[i][j]);
    input.addEventListener("input", () => {
      const given = input.valueAsNumber;
      const good = Number.isFinite(given) && Math.abs(given) <= LARGEST;
      input.setAttribute("aria-invalid", String(!good));
      if (!good) {
        tell(spec.name + ", " + rows[i] + ", " + columns[j] + ":  not a number up to " + LARGEST.toLocaleString("en") + ", so that " + numbers[i][j] + " is kept");
        return;
      }
      numbers[i][j] = given;
      input.classList.toggle("moved", given !== start[i][j]);
      changed();
    });
    inputs.push(() => {
      numbers[i][j] = start[i][j];
      input.value = String(start[i][j]);
      input.setAttribute("aria-invalid", "false");
      input.classList.remove("moved");
    });
    return make("td", {}, input);
  });
  return { table, numbers, reset: () => inputs.forEach((one) => one()) };
}

/* Computed numbers: `show` puts new ones in; `why(i, j)` says where one comes from, for `tell`. */
function computed(spec, rows, columns, why, tell) {
  const cells = rows.map(() => []);
  const table = figure(spec, rows, columns, (i, j) => {
    const cell = make("td", { class: spec.bars ? "computed weight" : "computed" });
    cell.addEventListener("pointerenter", () => tell(spec.name + ", " + rows[i] + ", " + columns[j] + ":  " + why(i, j)));
    cells[i].push(cell);
    return cell;
  });
  let start = null;
  let last = null;
  function show(numbers) {
    start ??= numbers;
    numbers.forEach((row, i) => row.forEach((number, j) => {
      if (last && Object.is(last[i][j], number)) return;
      const cell = cells[i][j];
      cell.textContent = shown(number);
      cell.title = number === -Infinity ? "hidden by the mask" : String(number);
      cell.classList.toggle("moved", shown(number) !== shown(start[i][j]));
      if (spec.bars) cell.style.setProperty("--ink", String(number));
    }));
    last = numbers;
  }
  return { table, show };
}
