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

// TestPage fails if the page lacked its plots, so that readers saw broken images, or a goal.
func TestPage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	r := &report{Writer: io.Discard, kubernetes: "v1.36.3", plots: []plot{{
		title: "p50 < 2", file: "calls.svg", loads: []string{"GET & more", "LIST"}, endpoints: []string{"direct", "gateway"},
		ratios: [][]float64{{0.5, 1.2}, {1, 4}},
	}}}
	r.atMost("p50 / proxy", 1.2, 1.05, "")
	r.atLeast("calls/s / proxy", 0.96, 0.95, "")
	if err := r.writePage(file, "\nload  p50\n", []string{"calls"}); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"](calls.svg)", "load  p50", "go run ./test/bench calls", "| Go | go",
		"| Kubernetes | v1.36.3 |",
		"| p50 / proxy | at most 1.05 | 1.2 | missed |", "| calls/s / proxy | at least 0.95 | 0.96 | reached |"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	svg, err := os.Open(filepath.Join(filepath.Dir(file), "calls.svg"))
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
