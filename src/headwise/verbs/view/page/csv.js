/* Tables of what is shown, as comma-separated values (RFC 4180): every text in quotes, lines end in CR LF. The file
   begins with a byte order mark, without which Excel takes UTF-8 for the machine's old code page; readers that know
   UTF-8 skip it (in Python: encoding="utf-8-sig"). */
const Csv = (function () {
  const MARK = "\ufeff";
  // A spreadsheet takes such a text for a formula, also in quotes and after blanks; an apostrophe before it is what
  // spreadsheets themselves use to say "text".
  const ACTS = /^[\s\p{Cf}]*[=+\-@\uff1d\uff0b\uff0d\uff20|]/u;

  function field(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
    const text = ACTS.test(value) ? "'" + value : value;
    return '"' + text.replace(/"/gu, '""') + '"';
  }

  /* The table with one line for each of `rows`, whose fields stand in the order of `columns`. */
  function table(columns, rows) {
    const lines = [columns, ...rows].map((row) => row.map(field).join(","));
    return MARK + lines.join("\r\n") + "\r\n";
  }

  /* A weight as the file carries it: a float32 whole, an 8-bit one with the three digits it can have. */
  function weight(value, exact) {
    return Number(value.toPrecision(exact ? 9 : 3));
  }

  return { table, weight };
})();
