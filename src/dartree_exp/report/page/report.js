"use strict";
(() => {
  // Theme: the system's setting, until the button is pressed.
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  document.getElementById("theme").addEventListener("click", () => {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
  });

  // Tables: a click on a header sorts by it, a second one reverses the order, a third one restores it.
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const original = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
      const numeric = original.some((row) => row.cells[column].dataset.sort !== undefined);
      const cycle = numeric ? ["none", "descending", "ascending"] : ["none", "ascending", "descending"];
      const order = cycle[(cycle.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", order);
      const sign = order === "descending" ? -1 : 1;
      const rows = order === "none" ? original : [...original].sort((a, b) => {
        const [x, y] = [a.cells[column], b.cells[column]];
        if (!numeric) return sign * x.textContent.localeCompare(y.textContent, undefined, { numeric: true });
        const [u, v] = [x, y].map((cell) => cell.dataset.sort === undefined ? NaN : Number(cell.dataset.sort));
        if (isNaN(u) || isNaN(v)) return isNaN(u) - isNaN(v); // cells without a number are last
        return sign * (u - v);
      });
      body.classList.toggle("sorted", order !== "none");
      body.append(...rows);
    }));
  }

  // The viewer.
  const source = document.getElementById("rounds");
  if (!source) return;
  const runs = JSON.parse(source.textContent);
  const at = (id) => document.getElementById(id);
  const [pickRun, pickSample, slide, back, next, where, told, canvas, told2, pruned] =
    ["pick-run", "pick-sample", "slide", "back", "next", "where", "told", "canvas", "node", "pruned"].map(at);
  const ROW = 25, GONE = 6.5, HEIGHT = 21, CHAR = 7.7, LONGEST = 16, GAP = 34;

  const seen = (text) => text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/ /g, "·");
  const short = (text) => { const s = [...seen(text)]; return s.length > LONGEST ? s.slice(0, LONGEST - 1).join("") + "…" : s.join(""); };
  const make = (name, attributes, parent) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (parent) parent.append(element);
    return element;
  };

  // Nodes with positions: one column per depth; the best child is in its parent's row, the others below it.
  function layout(round, withPruned) {
    const nodes = round.text.map((text, i) => ({
      i, text, state: i ? ["gone", "verified", "accepted"][round.state[i]] : "root", children: [], depth: 0,
    }));
    nodes.forEach((node, i) => {
      if (!i || (!withPruned && node.state === "gone")) return;
      nodes[round.parent[i]].children.push(node);
    });
    for (const node of nodes) {
      const taken = (child) => child.state === "accepted";
      node.children.sort((a, b) => taken(b) - taken(a) || round.score[b.i] - round.score[a.i] || a.i - b.i);
    }
    nodes[round.last].children.unshift({ i: -1, text: round.bonus, state: "bonus", children: [] });
    const placed = [], widths = [];
    let y = 30, head = nodes[0]; // of the row: if it is pruned, so is the rest of the row, and the row is low
    const place = (node, parent, first) => {
      node.depth = parent ? parent.depth + 1 : 0;
      if (!first) {
        y += ([node, head].filter((n) => n.state === "gone").length * (GONE - ROW)) / 2 + ROW;
        head = node;
      }
      Object.assign(node, { y, parent, label: short(node.text) });
      node.width = node.state === "gone" ? 8 : [...node.label].length * CHAR + 14;
      widths[node.depth] = Math.max(widths[node.depth] || 0, node.width);
      placed.push(node);
      node.children.forEach((child, k) => place(child, node, k === 0));
    };
    place(nodes[0], null, true);
    const columns = [];
    widths.reduce((x, width, depth) => { columns[depth] = x; return x + width + GAP; }, 8);
    for (const node of placed) node.x = columns[node.depth];
    return { placed, columns, width: columns.at(-1) + widths.at(-1) + 16, height: y + 24 };
  }

  function draw(round) {
    const { placed, columns, width, height } = layout(round, pruned.checked);
    const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "draft tree" });
    columns.forEach((x, depth) => { make("text", { x, y: 9, class: "axis" }, svg).textContent = depth ? depth : "root"; });
    const order = { gone: 0, verified: 1, bonus: 2, accepted: 3 };
    const drawn = [...placed].sort((a, b) => order[a.state] - order[b.state]); // the path is drawn on top
    for (const node of drawn) {
      if (!node.parent) continue;
      const [x0, y0, x1, y1] = [node.parent.x + node.parent.width, node.parent.y, node.x, node.y];
      const trunk = x0 + 11, bend = Math.min(8, y1 - y0);
      const d = y0 === y1 ? `M${x0} ${y0}H${x1}` : `M${trunk} ${y0}V${y1 - bend}Q${trunk} ${y1} ${trunk + bend} ${y1}H${x1}`;
      make("path", { d, class: node.state }, svg);
    }
    for (const node of placed) {
      const group = make("g", { class: `node ${node.state}`, "data-node": node.i }, svg);
      if (node.state === "gone") {
        make("circle", { cx: node.x + 4, cy: node.y, r: 2.4 }, group);
      } else {
        const box = { x: node.x, y: node.y - HEIGHT / 2, width: node.width, height: HEIGHT, rx: 6 };
        make("rect", box, group);
        if (node.state === "verified") make("rect", { ...box, class: "shade", "fill-opacity": (0.04 + 0.42 * round.step[node.i]).toFixed(3) }, group);
        make("text", { x: node.x + 7, y: node.y }, group).textContent = node.label;
      }
      make("title", {}, group).textContent = describe(round, node);
      group.addEventListener("pointerenter", () => { told2.textContent = describe(round, node); });
    }
    canvas.replaceChildren(svg);
  }

  function describe(round, node) {
    if (node.state === "bonus") return `“${seen(node.text)}”: the target’s own token after the accepted path`;
    if (node.state === "root") return `“${seen(node.text)}” (id ${round.token[0]}): the root, the last committed token`;
    const words = { gone: "pruned before verification", verified: "verified, not accepted", accepted: "accepted" };
    const rank = round.rank ? `, rank ${round.rank[node.i]} among its depth’s candidates` : "";
    return `“${seen(node.text)}” (id ${round.token[node.i]}): ${words[node.state]}; probability ${round.step[node.i]} given its parent, ` +
      `log-probability of the path ${round.score[node.i]}${rank}`;
  }

  function tell(round) {
    const part = (name, text) => { const span = document.createElement("span"); span.className = name; span.textContent = text; return span; };
    const path = [];
    for (let node = round.last; node > 0; node = round.parent[node]) path.unshift(round.text[node]);
    told.replaceChildren(part("before", "…" + round.context), part("root", round.text[0]), part("accepted", path.join("")), part("bonus", round.bonus));
    const count = (state) => round.state.filter((s) => s >= state).length - 1;
    const times = Object.entries(round.ms).map(([stage, ms]) => `${stage} ${ms}`).join(", ");
    told2.textContent = `${path.length + 1} tokens advanced; ${count(1)} nodes verified of ${count(0)} scored` + (times ? `; milliseconds: ${times}` : "") + ". Point at a node for its numbers.";
  }

  const sample = () => runs[pickRun.value].samples[pickSample.value];
  function show() {
    const rounds = sample().rounds, index = Number(slide.value), round = rounds[index];
    where.textContent = `round ${round.round + 1} of ${rounds.at(-1).round + 1}`;
    back.disabled = index === 0;
    next.disabled = index === rounds.length - 1;
    tell(round);
    draw(round);
  }
  function start() { // with the round that accepted the most tokens
    const advanced = sample().rounds.map((round) => round.state.filter((state) => state === 2).length);
    slide.max = advanced.length - 1;
    slide.value = advanced.indexOf(Math.max(...advanced));
    show();
  }
  function fill(select, names) { select.replaceChildren(...names.map((name, i) => new Option(name, i))); }
  function chooseRun() {
    const run = runs[pickRun.value];
    fill(pickSample, run.samples.map((s) => s.id));
    at("left-out").textContent = run.left_out ? `${run.left_out} more recorded rounds of this run are not on this page; --tree shows them in the terminal.` : "";
    start();
  }
  const step = (by) => { slide.value = Number(slide.value) + by; show(); };
  fill(pickRun, runs.map((run) => run.name));
  pickRun.addEventListener("change", chooseRun);
  pickSample.addEventListener("change", start);
  slide.addEventListener("input", show);
  pruned.addEventListener("change", show);
  back.addEventListener("click", () => step(-1));
  next.addEventListener("click", () => step(1));
  at("viewer").addEventListener("keydown", (event) => {
    if (event.target.matches("select, input")) return;
    if (event.key === "ArrowLeft") { step(-1); event.preventDefault(); }
    if (event.key === "ArrowRight") { step(1); event.preventDefault(); }
  });
  pickRun.value = runs.length - 1;
  chooseRun();
})();
