// The table of all items: rows are made of the data when they are looked at, as there may be thousands.
{
  const {columns, rows} = JSON.parse(document.getElementById("data").textContent);
  const table = document.getElementById("item-table"), body = table.tBodies[0];
  const filter = document.getElementById("filter");
  const keys = [row => row.label, row => row.method, row => row.state];
  const order = document.getElementById("order");
  const size = matchMedia("(max-width: 44rem)").matches ? 10 : PAGE; // a card each on a phone
  let shown = rows, first = 0;

  const cell = (row, title, text, kind = "td") => {
    const made = document.createElement(kind);
    if (title) made.dataset.title = title;
    if (text === "–") made.dataset.value = ""; // which a phone leaves out
    made.textContent = text;
    row.append(made);
    return made;
  };
  const draw = () => {
    body.replaceChildren(...shown.slice(first, first + size).map(each => {
      const row = document.createElement("tr");
      const name = cell(row, "", each.link ? "" : each.label, "th");
      name.scope = "row";
      name.className = "source";
      if (each.link) {
        const link = document.createElement("a");
        link.href = each.link.split("/").map(encodeURIComponent).join("/");
        link.textContent = each.label;
        name.append(link);
      }
      cell(row, "method", each.method);
      const state = cell(row, "state", each.state);
      state.className = each.state;
      if (each.error) state.title = each.error;
      each.texts.forEach((text, i) => cell(row, columns[i].title, text));
      return row;
    }));
    const last = Math.min(first + size, shown.length);
    document.getElementById("count").textContent = `${shown.length} of ${rows.length} rows`;
    document.getElementById("place").textContent = shown.length ? `${first + 1} to ${last} of ${shown.length}` : "none";
    document.getElementById("previous").disabled = first === 0;
    document.getElementById("next").disabled = last >= shown.length;
  };
  const select = () => {
    const words = filter.value.toLowerCase().split(/\s+/);
    shown = rows.filter(row => {
      const text = `${row.label} ${row.method} ${row.state} ${row.error}`.toLowerCase();
      return words.every(word => text.includes(word));
    });
    first = 0;
    draw();
  };
  const headings = [...table.tHead.rows[0].cells];
  const sort = (i, up) => {
    for (const other of headings) other.removeAttribute("aria-sort");
    headings[i].setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = keys[i] ?? (row => row.values[i - keys.length]);
    rows.sort((one, other) => {
      const [a, b] = [key(one), key(other)];
      if (a === null || b === null) return (a === null) - (b === null); // what is missing stays at the end
      const order = typeof a === "string" ? a.localeCompare(b) : a - b;
      return up ? order : -order;
    });
    select();
  };
  headings.forEach((heading, i) => {
    const button = heading.querySelector("button");
    button.addEventListener("click", () => sort(i, heading.getAttribute("aria-sort") === "descending"));
    for (const [sign, up] of [["▼", ""], ["▲", "up"]]) order.add(new Option(`${button.textContent} ${sign}`, `${i} ${up}`));
  });
  order.addEventListener("change", () => {
    const [i, up] = order.value.split(" ");
    sort(+i, up === "up");
  });
  filter.addEventListener("input", select);
  for (const [id, step] of [["previous", -size], ["next", size]])
    document.getElementById(id).addEventListener("click", () => { first += step; draw(); });
  for (const hidden of document.querySelectorAll(".needs-script")) hidden.hidden = false;
  draw();
}
