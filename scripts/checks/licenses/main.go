// Command licenses reports the licenses of the product, of Go's standard library and of all modules that the released
// programs and images contain. It fails if a module has no license, or one that is not in the list of permitted ones.
//
// Usage: licenses [--root DIR] [--full]. With --full, the report includes the texts of licenses and notices, as most
// licenses require.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
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

// released are packages in releases.
type released struct {
	dir      string // of their module
	packages []string
	systems  []string
}

// all are the released packages. Images also contain the root certificates of a package.
var all = []released{
	{".", []string{"./scripts/clusterpass"}, []string{"windows"}},
	{".", []string{"./scripts/clusterpass", "./infra/local", "./websocket-bridge/agent"}, []string{"linux", "darwin"}},
	{".", []string{"./websocket-bridge", "./functions/..."}, []string{"linux"}},
	{"infra/release", []string{"golang.org/x/crypto/x509roots/fallback/bundle"}, []string{"linux"}},
}

// permitted are licenses that allow the distribution of programs under the Apache License 2.0.
var permitted = []string{
	"Apache-2.0", "BSD-2-Clause", "BSD-2-Clause-FreeBSD", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unlicense",
}

var (
	licenseFile = regexp.MustCompile(`(?i)^(licen[sc]e|copying|unlicense)([.-](txt|md|apache.*|mit|bsd.*))*$`)
	noticeFile  = regexp.MustCompile(`(?i)^notice([.-](txt|md))*$`)
)

type module struct {
	Path, Version, Dir string

	packages map[string]bool   // directories of the linked packages
	licenses []string          // SPDX identifiers
	texts    map[string]string // licenses and notices by file names, which are relative to Dir
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
			faults = append(faults, fmt.Errorf("%s: %w", m.name(), err))
		}
		_, _ = fmt.Fprintf(out, "%s: %s\n", m.name(), strings.Join(m.licenses, ", "))
	}
	for _, m := range modules {
		for _, name := range slices.Sorted(maps.Keys(m.texts)) {
			if full {
				_, _ = fmt.Fprintf(out, "\n==== %s, %s\n\n%s\n", m.name(), name, m.texts[name])
			}
		}
	}
	return errors.Join(faults...)
}

// name returns path and version. The product's module has no version.
func (m *module) name() string { return strings.TrimSpace(m.Path + " " + m.Version) }

// linked returns the modules of which releases contain packages, sorted by path.
func linked(ctx context.Context, root string) ([]*module, error) {
	found := map[string]*module{}
	for _, r := range all {
		for _, system := range r.systems {
			args := append([]string{"list", "-deps", "-tags", "lambda.norpc", "-json=Dir,Root,Module,Standard"}, r.packages...)
			cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // the packages are fixed
			cmd.Dir, cmd.Env = filepath.Join(root, r.dir), append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0", "GOWORK=off")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			data, err := cmd.Output()
			if err == nil {
				err = add(found, json.NewDecoder(bytes.NewReader(data)))
			}
			if err != nil {
				return nil, fmt.Errorf("list the modules of %s: %w\n%s", r.packages, err, stderr.Bytes())
			}
		}
	}
	modules := slices.Collect(maps.Values(found))
	slices.SortFunc(modules, func(a, b *module) int { return strings.Compare(a.Path, b.Path) })
	return modules, nil
}

// add reads packages from the output of go list, and adds their modules.
func add(found map[string]*module, list *json.Decoder) error {
	for list.More() {
		var p struct {
			Dir      string
			Root     string
			Module   *module
			Standard bool
		}
		if err := list.Decode(&p); err != nil {
			return err
		}
		m := p.Module
		if p.Standard {
			// Its packages have no other licenses, except BoringCrypto, which the programs do not contain.
			m, p.Dir = &module{Path: "std", Version: runtime.Version(), Dir: p.Root}, p.Root
		}
		if m == nil || p.Dir == "" {
			continue
		}
		if found[m.Path] == nil {
			m.packages = map[string]bool{}
			found[m.Path] = m
		}
		found[m.Path].packages[p.Dir] = true
	}
	return nil
}

// read finds the licenses in the directories of packages, and in those above up to the module's. All must be permitted.
func (m *module) read() error {
	dirs := map[string]bool{m.Dir: true}
	for dir := range m.packages {
		for ; strings.HasPrefix(dir, m.Dir+string(filepath.Separator)) && !dirs[dir]; dir = filepath.Dir(dir) {
			dirs[dir] = true
		}
	}
	m.texts = map[string]string{}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if err := m.readDir(dir); err != nil {
			return err
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

func (m *module) readDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		isLicense := licenseFile.MatchString(e.Name())
		if e.IsDir() || !isLicense && !noticeFile.MatchString(e.Name()) {
			continue
		}
		file := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(m.Dir, file)
		if err != nil {
			return err
		}
		m.texts[name] = string(text)
		if !isLicense {
			continue
		}
		cover := licensecheck.Scan(text)
		if cover.Percent < minCover {
			return fmt.Errorf("%s is unknown: %.0f %% of it are text of known licenses; read it", name, cover.Percent)
		}
		for _, match := range cover.Match {
			if !slices.Contains(m.licenses, match.ID) {
				m.licenses = append(m.licenses, match.ID)
			}
		}
	}
	return nil
}
