// Sorts a table by the column whose heading is pressed; again turns it round. Empty cells stay at the end.
for (const button of document.querySelectorAll("table:not([data-paged]) th button")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th"), body = heading.closest("table").tBodies[0];
    const up = heading.getAttribute("aria-sort") === "descending";
    for (const other of heading.parentNode.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = row => row.cells[heading.cellIndex]?.dataset.value ?? ""; // a failed method has one cell
    const compare = (a, b) => {
      if (a === "" || b === "") return (a === "") - (b === "");
      const order = isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
      return up ? order : -order;
    };
    body.append(...[...body.rows].sort((a, b) => compare(key(a), key(b))));
  });
}
