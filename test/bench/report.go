package main

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report prints tables, and collects them for a page.
type report struct {
	io.Writer
	kubernetes string // version of the real clusters; empty without them
	plots      []plot
	goals      []goal
}

// goal is a figure that a part measured, beside its limit.
type goal struct {
	name      string
	limit     string
	figure    float64
	isReached bool
}

// atMost adds a goal that is reached up to limit.
func (r *report) atMost(name string, figure, limit float64, unit string) {
	r.goals = append(r.goals, goal{name, fmt.Sprintf("at most %g%s", limit, unit), figure, figure <= limit})
}

// atLeast adds a goal that is reached from limit on.
func (r *report) atLeast(name string, figure, limit float64, unit string) {
	r.goals = append(r.goals, goal{name, fmt.Sprintf("at least %g%s", limit, unit), figure, figure >= limit})
}

func (g goal) verdict() string {
	if g.isReached {
		return "reached"
	}
	return "missed"
}

// printGoals prints a table of the goals. The page has its own.
func (r *report) printGoals(out io.Writer) error {
	if len(r.goals) == 0 {
		return nil
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, "\ngoal\tlimit\tmeasured\t")
	for _, g := range r.goals {
		_, _ = fmt.Fprintf(tw, "%s\t%s\t%.4g\t%s\n", g.name, g.limit, g.figure, g.verdict())
	}
	return tw.Flush()
}

// plot is a diagram of ratios: for each load, one bar for each endpoint.
type plot struct {
	title, file string
	loads       []string
	endpoints   []string
	ratios      [][]float64 // by load, then by endpoint
}

// writePage writes docs/benchmarks.md, or another file, and the plots beside it. tables is what the parts printed, and
// arguments are those of the program without --write.
func (r *report) writePage(file, tables string, arguments []string) error {
	var page strings.Builder
	page.WriteString("# Benchmarks\n\nThis page shows the last run of the benchmarks that the row `command` names, for " +
		"readers who compare\ngateways. [performance.md](explanation/performance.md) explains the figures. Compare " +
		"two of them\nonly within a run.\n\n")
	command := "make bench"
	if len(arguments) > 0 {
		command = "make build-bench moto && go run ./test/bench " + strings.Join(arguments, " ")
	}
	page.WriteString("| | |\n|---|---|\n")
	for _, row := range [][2]string{
		{"date", time.Now().UTC().Format(time.DateOnly)}, {"machine", machine()}, {"Go", runtime.Version()},
		{"Kubernetes", cmp.Or(r.kubernetes, "stand-ins only")}, {"revision", revision()},
		{"the compiler's profile of gateways in processes of their own", profileOfBuild()},
		{"command", "`" + command + "`"},
	} {
		_, _ = fmt.Fprintf(&page, "| %s | %s |\n", row[0], row[1])
	}
	if len(r.goals) > 0 {
		page.WriteString("\n## Goals\n\n| goal | limit | measured | |\n|---|---|---|---|\n")
	}
	for _, g := range r.goals {
		_, _ = fmt.Fprintf(&page, "| %s | %s | %.4g | %s |\n", g.name, g.limit, g.figure, g.verdict())
	}
	page.WriteString("\n## Measured\n")
	for _, p := range r.plots {
		_, _ = fmt.Fprintf(&page, "\n![%s](%s)\n", p.title, p.file)
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), p.file), p.svg(), 0o600); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintf(&page, "\n```text\n%s\n```\n", strings.Trim(tables, "\n"))
	return os.WriteFile(file, []byte(page.String()), 0o600)
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

func revision() string {
	out, err := exec.Command("git", "describe", "--always", "--abbrev=8", "--dirty", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return string(bytes.TrimSpace(out))
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
