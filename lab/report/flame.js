"use strict";
// Draws the flame graphs of #flame-data. Without it the page has tables and a drawing.
(() => {
  const $ = (id) => document.getElementById("flame-" + id);
  const data = JSON.parse($("data").textContent);
  const graph = $("graph"), rowPx = 20, thinnestPx = 2;
  const kinds = ["same", "kernel", "user"];
  let nodes = [], root, zoomed, bars = [], tallest = 0;

  // unpack makes a tree of a profile's numbers: five a frame, parents first.
  function unpack(profile) {
    const path = [];
    nodes = [];
    for (let i = 0; i < profile.nodes.length; i += 5) {
      const [name, depth, device, clean, shade] = profile.nodes.slice(i, i + 5);
      const node = { name: profile.names[name], kind: profile.kinds[name], depth, device, clean, shade, parent: path[depth - 1] || null, children: [] };
      if (node.parent) node.parent.children.push(node);
      path[depth] = node;
      nodes.push(node);
    }
    tallest = Math.max(...nodes.map((n) => n.depth)) + 1;
    root = zoomed = nodes[0];
  }

  const shown = () => document.querySelector("input[name=flame-kind]:checked").value;
  const cost = (n) => shown() === "clean" ? n.clean : n.device; // ps: the width
  const ns = (ps) => (ps / 1000).toFixed(1);
  const signed = (ps) => (ps < 0 ? "−" : "+") + ns(Math.abs(ps));
  const share = (part, whole) => whole > 0 ? (100 * part / whole).toFixed(1) + " %" : "–";
  const within = (n, ancestor) => { for (; n; n = n.parent) if (n === ancestor) return true; return false; };

  function label(n) {
    return `${n.name}: device ${ns(n.device)} ns per packet (${share(n.device, root.device)}), clean router ${ns(n.clean)} (${share(n.clean, root.clean)}), difference ${signed(n.device - n.clean)}`;
  }

  function colour(n) {
    if (shown() !== "difference") return kinds[n.kind];
    return n.shade > 0 ? "more" + n.shade : n.shade < 0 ? "less" + -n.shade : "same";
  }

  // draw lays out the zoomed frame over the whole width, its callers above it.
  function draw(focus) {
    if (!cost(zoomed)) zoomed = root; // the clean router may lack the frame
    bars = [];
    graph.replaceChildren();
    graph.style.height = tallest * rowPx + "px";
    const width = graph.clientWidth || 1000;
    for (let n = zoomed.parent; n; n = n.parent) bar(n, 0, 1, width);
    bars.reverse();
    const place = (n, left) => {
      const part = cost(n) / (cost(zoomed) || 1);
      if (part * width < thinnestPx) return;
      bar(n, left, part, width);
      for (const c of n.children) {
        place(c, left);
        left += cost(c) / (cost(zoomed) || 1);
      }
    };
    place(zoomed, 0);
    graph.append(...bars.map((b) => b.element));
    mark();
    activate(bars.find((b) => b.node === (focus || zoomed)) || bars[0], Boolean(focus));
  }

  function bar(node, left, part, width) {
    const element = document.createElement("div");
    element.className = colour(node);
    element.setAttribute("role", "treeitem");
    element.setAttribute("aria-level", node.depth + 1);
    element.setAttribute("aria-selected", node === zoomed);
    element.setAttribute("aria-label", label(node));
    element.tabIndex = -1;
    element.style.left = 100 * left + "%";
    element.style.width = 100 * part + "%";
    element.style.top = node.depth * rowPx + "px";
    if (part * width > 24) element.textContent = node.name.replace(/ \[[^\]]*\]$/, "");
    const b = { node, element };
    element.addEventListener("click", () => zoom(node));
    element.addEventListener("mouseenter", () => { $("detail").textContent = label(node); });
    element.addEventListener("focus", () => { $("detail").textContent = label(node); });
    bars.push(b);
  }

  // activate makes one bar the one that Tab reaches.
  function activate(b, focus) {
    if (!b) return;
    for (const other of bars) other.element.tabIndex = other === b ? 0 : -1;
    if (focus) b.element.focus({ preventScroll: true });
  }

  function zoom(node) {
    zoomed = node;
    draw(node);
    $("detail").textContent = label(node);
  }

  // mark shows the frames whose name holds what is searched for and adds up the
  // outermost of them.
  function mark() {
    const wanted = $("search").value.trim().toLowerCase();
    const hit = (n) => wanted !== "" && n !== root && n.name.toLowerCase().includes(wanted);
    for (const b of bars) b.element.classList.toggle("found", hit(b.node));
    if (wanted === "") {
      $("found").textContent = "";
      return;
    }
    let count = 0, device = 0, clean = 0;
    const walk = (n, inside) => {
      const is = hit(n);
      if (is) count++;
      if (is && !inside) { device += n.device; clean += n.clean; }
      for (const c of n.children) walk(c, inside || is);
    };
    walk(root, false);
    $("found").textContent = count === 0 ? `Nothing matches “${$("search").value.trim()}”.`
      : `${count} ${count === 1 ? "frame matches" : "frames match"}: device ${ns(device)} ns per packet (${share(device, root.device)}), clean router ${ns(clean)} (${share(clean, root.clean)}), difference ${signed(device - clean)}.`;
  }

  function legend() {
    const entries = shown() === "difference"
      ? [["less3", "less than the clean router"], ["same", "the same, as far as samples tell"], ["more2", "more"], ["more4", "only the device"]]
      : [["kernel", "kernel"], ["user", "user code"], ["same", "thread or process"]];
    $("legend").replaceChildren(...entries.map(([style, text]) => {
      const span = document.createElement("span"), swatch = document.createElement("i");
      swatch.className = style;
      span.append(swatch, text);
      return span;
    }), shown() === "difference" ? "Width: the device’s cost." : "");
  }

  function neighbour(from, key) {
    const { node } = from, at = bars.indexOf(from);
    switch (key) {
      case "ArrowUp": return bars.find((b) => b.node === node.parent);
      case "ArrowDown": return bars.find((b) => b.node.parent === node);
      case "ArrowRight": return bars.slice(at + 1).find((b) => b.node.depth === node.depth);
      case "ArrowLeft": return bars.slice(0, at).reverse().find((b) => b.node.depth === node.depth);
      case "Home": return bars[0];
      case "End": return bars[bars.length - 1];
    }
    return undefined;
  }

  graph.addEventListener("keydown", (event) => {
    const current = bars.find((b) => b.element === document.activeElement);
    if (!current || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Enter" || event.key === " ") zoom(current.node);
    else if (event.key === "Escape") zoom(zoomed.parent || root);
    else if (/^(Arrow|Home$|End$)/.test(event.key)) activate(neighbour(current, event.key), true);
    else return;
    event.preventDefault();
  });

  function show(number) {
    unpack(data[number]);
    for (const part of document.querySelectorAll(".flame-profile")) part.hidden = Number(part.dataset.profile) !== number;
    $("detail").textContent = "";
    redraw();
  }

  function redraw() {
    graph.setAttribute("aria-label", "Flame graph of " + data[$("profile").selectedIndex].title + ", " + shown());
    legend();
    draw();
  }

  $("profile").append(...data.map((p) => new Option(p.title)));
  $("profile").addEventListener("change", () => show($("profile").selectedIndex));
  for (const radio of document.querySelectorAll("input[name=flame-kind]")) radio.addEventListener("change", redraw);
  $("search").addEventListener("input", mark);
  $("reset").addEventListener("click", () => { zoomed = root; draw(); });
  $("view").hidden = false;
  show(0);
  let width = graph.clientWidth;
  addEventListener("resize", () => {
    if (graph.clientWidth === width) return;
    width = graph.clientWidth;
    draw();
  });
})();
