package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// minPasses specs must pass directly. With fewer, the test cluster itself is broken, and the comparison proves nothing.
const minPasses = 50

// A comparison compares all other reports with the first one.
type comparison struct {
	reports []*report
	names   []string // the names of the specs that any target ran, sorted
}

func compare(reports []*report) *comparison {
	all := map[string]bool{}
	for _, r := range reports {
		for name := range r.specs {
			all[name] = true
		}
	}
	return &comparison{reports: reports, names: slices.Sorted(maps.Keys(all))}
}

func (r *report) of(name string) spec {
	if s, ok := r.specs[name]; ok {
		return s
	}
	return spec{result: notRun}
}

func (c *comparison) count(r *report, want result) int {
	n := 0
	for _, name := range c.names {
		if r.of(name).result == want {
			n++
		}
	}
	return n
}

// regressions returns the specs that pass on the first target, but not on r.
func (c *comparison) regressions(r *report) []string {
	var names []string
	for _, name := range c.names {
		if c.reports[0].of(name).result == passed && r.of(name).result != passed {
			names = append(names, name)
		}
	}
	return names
}

// verdict returns nil if every target ran completely, at least floor specs pass on the first, and each of those passes
// on the others.
func (c *comparison) verdict(floor int) error {
	var errs []error
	for _, r := range c.reports {
		if r.incomplete != "" {
			errs = append(errs, fmt.Errorf("%s: the run is incomplete: %s", r.target, r.incomplete))
		}
	}
	base := c.reports[0]
	if n := c.count(base, passed); n < floor {
		errs = append(errs, fmt.Errorf("only %d specs pass on %s, fewer than %d: the test cluster does not work",
			n, base.target, floor))
	}
	for _, r := range c.reports[1:] {
		names := c.regressions(r)
		if len(names) == 0 {
			continue
		}
		var text strings.Builder
		_, _ = fmt.Fprintf(&text, "%d specs pass on %s, but not on %s:", len(names), base.target, r.target)
		for _, name := range names {
			s := r.of(name)
			_, _ = fmt.Fprintf(&text, "\n  %s\n    %s: %s", name, s.result, s.reason)
		}
		errs = append(errs, errors.New(text.String()))
	}
	return errors.Join(errs...)
}

func (c *comparison) markdown() string {
	var b strings.Builder
	b.WriteString("| target | specs | passed | failed | skipped | not run | time |\n|---|---|---|---|---|---|---|\n")
	for _, r := range c.reports {
		_, _ = fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %s |\n", r.target, len(c.names),
			c.count(r, passed), c.count(r, failed), c.count(r, skipped), c.count(r, notRun), r.duration.Round(time.Second))
	}
	b.WriteString("\n| spec |")
	for _, r := range c.reports {
		_, _ = fmt.Fprintf(&b, " %s |", r.target)
	}
	b.WriteString(" reason |\n|---|" + strings.Repeat("---|", len(c.reports)) + "---|\n")
	for _, name := range c.names {
		c.row(&b, name)
	}
	return b.String()
}

func (c *comparison) row(b *strings.Builder, name string) {
	line, reason, everywhere := "| "+name+" |", "", true
	for _, r := range c.reports {
		s := r.of(name)
		line += " " + string(s.result) + " |"
		everywhere = everywhere && s.result == passed
		if reason == "" {
			reason = s.reason
		}
	}
	if !everywhere {
		b.WriteString(line + " " + strings.ReplaceAll(reason, "|", `\|`) + " |\n")
	}
}
