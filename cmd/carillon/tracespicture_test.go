package main

import (
	"cmp"
	"flag"
	"fmt"
	"html"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/carillonhq/carillon/internal/trace/tracetest"
)

var update = flag.Bool("update-traces", false, "draw docs/traces.svg from the spans of the test")

// node is a span in the tree of its trace.
type node struct {
	tracetest.Span
	depth int
}

// trees returns the spans of each trace, parents before their children, children in an order of names that a tick goes through.
func (w *traceWorld) trees() (all [][]node) {
	children := map[string][]tracetest.Span{}
	for _, s := range w.collector.Spans() {
		children[string(s.ParentSpanId)] = append(children[string(s.ParentSpanId)], s)
	}
	order := []string{"trigger", "open", "tick", "push", "lease", "receive", "work", "finish"}
	var walk func(tree []node, s tracetest.Span, depth int) []node
	walk = func(tree []node, s tracetest.Span, depth int) []node {
		tree = append(tree, node{s, depth})
		below := children[string(s.SpanId)]
		slices.SortStableFunc(below, func(a, b tracetest.Span) int {
			return cmp.Compare(slices.Index(order, a.Name), slices.Index(order, b.Name))
		})
		for _, one := range below {
			tree = walk(tree, one, depth+1)
		}
		return tree
	}
	for _, root := range children[""] {
		all = append(all, walk(nil, root, 0))
	}
	return all
}

// traces returns the traces as text: a line for each span, with its service, indented under its parent.
func (w *traceWorld) traces() (all []string) {
	for _, tree := range w.trees() {
		all = append(all, outline(tree))
	}
	return all
}

func outline(tree []node) string {
	var b strings.Builder
	for _, n := range tree {
		fmt.Fprintf(&b, "%s%s %s\n", strings.Repeat("  ", n.depth), n.Name, n.Resource["service.name"])
	}
	return b.String()
}

func (w *traceWorld) hasTrace(want string) bool { return slices.Contains(w.traces(), want) }

// draw draws the traces of ticks as an SVG: a bar for each span, from its start to its end.
func (w *traceWorld) draw(file string) {
	const row, name, bar, width = 24, 330, 560, 1000
	colours := map[string]string{"carillon-api": "#2f6f9f", "carillon-sweep": "#8a5a00", "carillon-dispatch": "#3a7d44", "application": "#777777"}
	var b strings.Builder
	y := 10
	for _, tree := range w.trees() {
		if len(tree) < 5 { // of a request that makes no tick
			continue
		}
		from, to := tree[0].StartTimeUnixNano, tree[0].EndTimeUnixNano
		for _, n := range tree {
			from, to = min(from, n.StartTimeUnixNano), max(to, n.EndTimeUnixNano)
		}
		fmt.Fprintf(&b, `<text x="10" y="%d" font-weight="bold">trace %x, %s</text>`+"\n", y+16, tree[0].TraceId, time.Duration(to-from).Round(time.Millisecond/10))
		y += row
		for _, n := range tree {
			place := func(at uint64) float64 { return name + bar*float64(at-from)/float64(to-from) }
			begin, end := place(n.StartTimeUnixNano), place(n.EndTimeUnixNano)
			service := n.Resource["service.name"]
			fmt.Fprintf(&b, `<text x="%d" y="%d">%s <tspan fill="%s">%s</tspan></text><rect x="%.1f" y="%d" width="%.1f" height="12" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n",
				20+18*n.depth, y+14, html.EscapeString(n.Name), colours[service], service, begin, y+5, max(2, end-begin), colours[service],
				name+bar+12, y+14, time.Duration(n.EndTimeUnixNano-n.StartTimeUnixNano).Round(time.Millisecond/10))
			y += row
		}
		y += row / 2
	}
	svg := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="13"><rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n%s</svg>\n", width, y, width, y, b.String())
	if err := os.WriteFile(file, []byte(svg), 0o644); err != nil {
		w.Fatal(err)
	}
}
