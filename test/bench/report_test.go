package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPage fails if the page lacked its plots, so that readers saw broken images, or a goal. It also fails if the page
// lost the figures of a part that a later run did not measure.
func TestPage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	order := []string{"idle", "calls", "scale"}
	write := func(part, table string, fill func(r *report)) string {
		r := &report{out: io.Discard, kubernetes: "v1.36.3"}
		failure := errors.New("no cluster")
		if err := r.measure("scale", func() error { return failure }); !errors.Is(err, failure) {
			t.Error(err)
		}
		err := r.measure(part, func() error {
			fill(r)
			_, err := io.WriteString(r, table)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.writePage(file, order, []string{part}); err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(page)
	}
	write("calls", "an earlier table", func(r *report) { r.atMost("an earlier goal", 1, 2, "") })
	write("calls", "\nload  p50\n", func(r *report) {
		r.current().plot = &plot{
			title: "p50 < 2", loads: []string{"GET & more", "LIST"}, endpoints: []string{"direct", "gateway"},
			ratios: [][]float64{{0.5, 1.2}, {1, 4}},
		}
		r.atMost("p50 / proxy", 1.2, 1.05, "")
		r.atLeast("calls/s / proxy", 0.96, 0.95, "")
	})
	page := write("idle", "streams  MiB", func(*report) {})
	last := 0
	for _, want := range []string{"# Benchmarks\n", "\n## idle\n", "streams  MiB", "\n## calls\n", "| v1.36.3 |",
		`make bench ARGS="--write docs/benchmarks.md calls"`, "| p50 / proxy | at most 1.05 | 1.2 | missed |",
		"| calls/s / proxy | at least 0.95 | 0.96 | reached |", "](benchmarks-calls.svg)", "load  p50"} {
		at := strings.Index(page[last:], want)
		if at < 0 {
			t.Errorf("the page lacks %q in this place:\n%s", want, page)
		}
		last += max(at, 0)
	}
	if strings.Contains(page, "earlier") || strings.Contains(page, "scale") {
		t.Errorf("the page has figures of a run before the last one, or of a part that failed:\n%s", page)
	}
	svg, err := os.Open(filepath.Join(filepath.Dir(file), "benchmarks-calls.svg"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = svg.Close() }()
	bars := 0
	for d := xml.NewDecoder(svg); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
			bars++
		}
	}
	if bars != 1+4 {
		t.Errorf("%d rectangles, want the background and 4 bars", bars)
	}
}
