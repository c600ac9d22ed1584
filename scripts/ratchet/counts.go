package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const countsFile = "scripts/ratchet/counts.txt"

// place is a file or a directory, and a rule that it breaks.
type place struct{ path, rule string }

type counts map[place]int

// change is a count that differs from the committed one.
type change struct {
	place
	from, to int
}

// readCounts returns the committed counts, or nil if there is no file.
func readCounts(root string) (counts, error) {
	text, err := os.ReadFile(filepath.Join(root, countsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	all := counts{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for number := 1; lines.Scan(); number++ {
		var p place
		var n int
		if _, err := fmt.Sscan(lines.Text(), &p.path, &p.rule, &n); err != nil {
			return nil, fmt.Errorf("%s:%d: want path, rule and number: %w", countsFile, number, err)
		}
		all[p] = n
	}
	return all, lines.Err()
}

func (c counts) places() []place {
	return slices.SortedFunc(maps.Keys(c), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.rule, b.rule))
	})
}

func (c counts) write(root string) error {
	var text bytes.Buffer
	for _, p := range c.places() {
		fmt.Fprintln(&text, p.path, p.rule, c[p])
	}
	return os.WriteFile(filepath.Join(root, countsFile), text.Bytes(), 0o600)
}

// byRule returns the total of each rule, at the path ".".
func (c counts) byRule() counts {
	all := counts{}
	for p, n := range c {
		all[place{".", p.rule}] += n
	}
	return all
}

func (c counts) totals() string {
	all := c.byRule()
	var texts []string
	for _, p := range all.places() {
		texts = append(texts, fmt.Sprintf("%s %d", p.rule, all[p]))
	}
	return strings.Join(texts, ", ")
}

// compare returns the places whose count rose, and those whose count fell, since it was committed.
func compare(committed, now counts) (risen, fallen []change) {
	both := maps.Clone(now)
	for p := range committed {
		both[p] = now[p]
	}
	for _, p := range both.places() {
		c := change{p, committed[p], now[p]}
		switch {
		case c.to > c.from:
			risen = append(risen, c)
		case c.to < c.from:
			fallen = append(fallen, c)
		}
	}
	return risen, fallen
}

// describe returns a line for each change and one for each command that helps.
func describe(risen, fallen []change) []string {
	var lines []string
	for _, c := range slices.Concat(risen, fallen) {
		verb := "fell"
		if c.to > c.from {
			verb = "rose"
		}
		lines = append(lines, fmt.Sprintf("  %s: %s %s from %d to %d", c.path, c.rule, verb, c.from, c.to))
	}
	if len(risen) > 0 {
		lines = append(lines,
			"to see the findings, run: go run ./scripts/ratchet list "+risen[0].path,
			"if code only moved between files, run: go run ./scripts/ratchet move")
	} else if len(fallen) > 0 {
		lines = append(lines, "to commit lower counts, run: go run ./scripts/ratchet lower")
	}
	return lines
}
