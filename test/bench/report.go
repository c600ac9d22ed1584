package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report prints tables, and collects the sections of a page.
type report struct {
	out        io.Writer
	kubernetes string // version of the real clusters; empty without them
	revision   string // that is measured
	sections   []*section
}

// section is what one part measured.
type section struct {
	part   string
	tables bytes.Buffer
	goals  []goal
	plot   *plot // nil for none
}

// goal is a figure that a part measured, beside its limit.
type goal struct {
	name      string
	limit     string
	figure    float64
	isReached bool
}

// measure runs a part with a section of its own, and removes the section if the part fails.
func (r *report) measure(part string, run func() error) error {
	r.sections = append(r.sections, &section{part: part})
	err := run()
	if err != nil {
		r.sections = r.sections[:len(r.sections)-1]
	}
	return err
}

func (r *report) current() *section { return r.sections[len(r.sections)-1] }

// Write implements io.Writer. It prints a part of a table.
func (r *report) Write(text []byte) (int, error) {
	r.current().tables.Write(text)
	return r.out.Write(text)
}

// atMost adds a goal that is reached up to limit.
func (r *report) atMost(name string, figure, limit float64, unit string) {
	s := r.current()
	s.goals = append(s.goals, goal{name, fmt.Sprintf("at most %g%s", limit, unit), figure, figure <= limit})
}

// atLeast adds a goal that is reached from limit on.
func (r *report) atLeast(name string, figure, limit float64, unit string) {
	s := r.current()
	s.goals = append(s.goals, goal{name, fmt.Sprintf("at least %g%s", limit, unit), figure, figure >= limit})
}

// plotFile returns the name of the plot's file, which is beside the page.
func (s *section) plotFile() string { return "benchmarks-" + s.part + ".svg" }

func (g goal) verdict() string {
	if g.isReached {
		return "reached"
	}
	return "missed"
}

// printGoals prints a table of the goals. The page has one for each part.
func (r *report) printGoals() error {
	if !slices.ContainsFunc(r.sections, func(s *section) bool { return len(s.goals) > 0 }) {
		return nil
	}
	tw := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, "\ngoal\tlimit\tmeasured\t")
	for _, s := range r.sections {
		for _, g := range s.goals {
			_, _ = fmt.Fprintf(tw, "%s\t%s\t%.4g\t%s\n", g.name, g.limit, g.figure, g.verdict())
		}
	}
	return tw.Flush()
}

// plot is a diagram of ratios: for each load, one bar for each endpoint.
type plot struct {
	title     string
	loads     []string
	endpoints []string
	ratios    [][]float64 // by load, then by endpoint
}

const pageStart = "# Benchmarks\n\nThis page shows the last run of each part of the benchmarks, for readers who " +
	"compare gateways.\n[performance.md](explanation/performance.md) explains the figures. Compare two of them only " +
	"within a\npart. `go run ./test/bench --help` lists the parts.\n"

// writePage writes docs/benchmarks.md, or another file, and the plots beside it. The page keeps the sections of parts
// that this run did not measure. order has all parts, and arguments are those of the program without --write.
func (r *report) writePage(file string, order, arguments []string) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	const heading = "\n## "
	texts := map[string]string{}
	for _, text := range strings.Split(string(old), heading)[1:] {
		part, text, _ := strings.Cut(text, "\n")
		texts[part] = text
	}
	for _, s := range r.sections {
		texts[s.part] = s.page(r.origin(arguments))
		if s.plot == nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), s.plotFile()), s.plot.svg(), 0o600); err != nil {
			return err
		}
	}
	page := pageStart
	for _, part := range order {
		if text, ok := texts[part]; ok {
			page += heading + part + "\n" + strings.TrimRight(text, "\n") + "\n"
		}
	}
	return os.WriteFile(file, []byte(page), 0o600)
}

// origin returns a table with the revision and the circumstances of the run.
func (r *report) origin(arguments []string) string {
	command := "make bench"
	if len(arguments) > 0 {
		command = fmt.Sprintf("make bench ARGS=\"--write docs/benchmarks.md %s\"", strings.Join(arguments, " "))
	}
	return fmt.Sprintf("\n| revision | date | machine | Go | Kubernetes | profile of compiled gateways | command |\n"+
		"|---|---|---|---|---|---|---|\n| %s | %s | %s | %s | %s | %s | `%s` |\n", r.revision,
		time.Now().UTC().Format(time.DateOnly), machine(), runtime.Version(), cmp.Or(r.kubernetes, "stand-ins only"),
		profileOfBuild(), command)
}

// page returns the text of a section below its heading.
func (s *section) page(origin string) string {
	text := origin
	if len(s.goals) > 0 {
		text += "\n| goal | limit | measured | |\n|---|---|---|---|\n"
	}
	for _, g := range s.goals {
		text += fmt.Sprintf("| %s | %s | %.4g | %s |\n", g.name, g.limit, g.figure, g.verdict())
	}
	if s.plot != nil {
		text += fmt.Sprintf("\n![%s](%s)\n", s.plot.title, s.plotFile())
	}
	return text + fmt.Sprintf("\n```text\n%s\n```\n", strings.Trim(s.tables.String(), "\n"))
}

func machine() string {
	model := runtime.GOARCH
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer func() { _ = f.Close() }()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d × %s, %s", runtime.NumCPU(), model, runtime.GOOS)
}

// revision returns the commit, with "-dirty" if the program may differ from it. The page itself does not count.
func revision() string {
	out, err := exec.Command("git", "describe", "--always", "--abbrev=8", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	name := string(bytes.TrimSpace(out))
	if exec.Command("git", "diff", "--quiet", "HEAD", "--", ":/", ":(top,exclude)docs").Run() != nil {
		name += "-dirty"
	}
	return name
}

// The sizes of a plot in pixels.
const (
	plotWidth, labelWidth = 760, 250
	barHeight, loadGap    = 16, 34
)

var barColors = []string{"#9aa5b1", "#c3cad1", "#2f6f9f", "#d98e3a", "#6b8e4e", "#8a5a83"}

// svg draws horizontal bars. A line marks the ratio 1.
func (p *plot) svg() []byte {
	most := 1.0
	for _, ratios := range p.ratios {
		most = max(most, slices.Max(ratios))
	}
	x := func(ratio float64) float64 { return labelWidth + ratio/most*(plotWidth-labelWidth-50) }
	height := 40 + len(p.loads)*(len(p.endpoints)*barHeight+loadGap)
	var b bytes.Buffer
	_, _ = fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" `+
		`font-size="12"><rect width="100%%" height="100%%" fill="#ffffff"/><text x="8" y="20" font-size="15">%s</text>`+"\n",
		plotWidth, height, html.EscapeString(p.title))
	y := 40
	for i, load := range p.loads {
		_, _ = fmt.Fprintf(&b, `<text x="8" y="%d" font-weight="bold">%s</text>`+"\n", y+12, html.EscapeString(load))
		y += 20
		for j, name := range p.endpoints {
			ratio := p.ratios[i][j]
			_, _ = fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%.0f" `+
				`height="%d" fill="%s"/><text x="%.0f" y="%d">%.2f</text>`+"\n", labelWidth-6, y+12, html.EscapeString(name),
				labelWidth, y+2, x(ratio)-labelWidth, barHeight-3, barColors[j%len(barColors)], x(ratio)+4, y+12, ratio)
			y += barHeight
		}
		y += loadGap - 20
	}
	_, _ = fmt.Fprintf(&b, `<line x1="%.0f" x2="%.0f" y1="34" y2="%d" stroke="#444444" stroke-dasharray="3 3"/>`+
		"</svg>\n", x(1), x(1), height-8)
	return b.Bytes()
}
