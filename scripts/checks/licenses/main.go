// Command licenses reports the licenses of all modules whose code the released programs contain. It fails if a module
// has no license, or one that is not in the list of permitted ones.
//
// Usage: licenses [--root DIR] [--full]. With --full, the report includes the text of each license, as most require.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/licensecheck"
)

const (
	listTimeout = 10 * time.Minute
	// minCover is the percentage of a file that known licenses must cover.
	minCover = 75
)

// programs are the released packages, by the systems that they are released for.
var programs = map[string][]string{
	"./scripts/clusterpass": {"linux", "darwin", "windows"},
	"./infra/local":         {"linux", "darwin"}, "./websocket-bridge/agent": {"linux", "darwin"},
	"./websocket-bridge": {"linux"}, "./functions/...": {"linux"},
}

// permitted are licenses that allow the distribution of programs under the Apache License 2.0.
var permitted = []string{
	"Apache-2.0", "BSD-2-Clause", "BSD-2-Clause-FreeBSD", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unlicense",
}

var licenseFile = regexp.MustCompile(`(?i)^(licen[sc]e|copying|unlicense)([.-](txt|md|apache.*|mit|bsd.*))*$`)

type module struct {
	Path, Version, Dir string
	Main               bool

	licenses []string          // SPDX identifiers
	texts    map[string]string // by file name
}

func main() {
	root := flag.String("root", "../..", "directory of the product's module")
	full := flag.Bool("full", false, "include the text of each license")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	if err := run(ctx, *root, *full, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string, full bool, out io.Writer) error {
	modules, err := linked(ctx, root)
	if err != nil {
		return err
	}
	var faults []error
	for _, m := range modules {
		if err := m.read(); err != nil {
			faults = append(faults, fmt.Errorf("%s %s: %w", m.Path, m.Version, err))
		}
		_, _ = fmt.Fprintf(out, "%s %s: %s\n", m.Path, m.Version, strings.Join(m.licenses, ", "))
	}
	for _, m := range modules {
		for _, name := range slices.Sorted(keys(m.texts)) {
			if full {
				_, _ = fmt.Fprintf(out, "\n==== %s %s, %s\n\n%s\n", m.Path, m.Version, name, m.texts[name])
			}
		}
	}
	return errors.Join(faults...)
}

func keys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// linked returns the modules of which the programs contain packages, sorted by path.
func linked(ctx context.Context, root string) ([]*module, error) {
	found := map[string]*module{}
	for pkg, systems := range programs {
		for _, system := range systems {
			cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-tags", "lambda.norpc", //nolint:gosec // pkg is fixed
				"-json=Module", pkg)
			cmd.Dir, cmd.Env = root, append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0", "GOWORK=off")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			data, err := cmd.Output()
			if err != nil {
				return nil, fmt.Errorf("list the modules of %s: %w\n%s", pkg, err, stderr.Bytes())
			}
			for dec := json.NewDecoder(bytes.NewReader(data)); dec.More(); {
				var p struct{ Module *module }
				if err := dec.Decode(&p); err != nil {
					return nil, fmt.Errorf("list the modules of %s: %w", pkg, err)
				}
				if p.Module != nil && !p.Module.Main {
					found[p.Module.Path] = p.Module
				}
			}
		}
	}
	modules := make([]*module, 0, len(found))
	for _, m := range found {
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b *module) int { return strings.Compare(a.Path, b.Path) })
	return modules, nil
}

// read finds the licenses of a module. A module may have several, all of which must be permitted.
func (m *module) read() error {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return err
	}
	m.texts = map[string]string{}
	for _, e := range entries {
		if e.IsDir() || !licenseFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(m.Dir, e.Name()))
		if err != nil {
			return err
		}
		m.texts[e.Name()] = string(text)
		cover := licensecheck.Scan(text)
		if cover.Percent < minCover {
			return fmt.Errorf("%s is unknown: %.0f %% of it are text of known licenses; read it", e.Name(), cover.Percent)
		}
		for _, match := range cover.Match {
			if !slices.Contains(m.licenses, match.ID) {
				m.licenses = append(m.licenses, match.ID)
			}
		}
	}
	slices.Sort(m.licenses)
	if len(m.licenses) == 0 {
		return errors.New("it has no license; its code must not be distributed")
	}
	for _, id := range m.licenses {
		if !slices.Contains(permitted, id) {
			return fmt.Errorf("the license %s is not permitted; replace the module", id)
		}
	}
	return nil
}
