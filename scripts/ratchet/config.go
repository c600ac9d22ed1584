package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	configFile = ".golangci.yml"
	firstLine  = "      # Begin of what go run ./scripts/ratchet lower writes.\n"
	lastLine   = "      # End of what go run ./scripts/ratchet lower writes.\n"
)

// limits are those of the linter.
type limits struct{ functionLines, complexity, lineLength int }

// config is .golangci.yml: its limits, and its text before, in and after the generated list of exclusions.
type config struct {
	limits                    limits
	before, exclusions, after string
}

func readConfig(root string) (*config, error) {
	text, err := os.ReadFile(filepath.Join(root, configFile))
	if err != nil {
		return nil, err
	}
	var parsed struct {
		Linters struct {
			Settings struct {
				Funlen  struct{ Lines int }
				Gocyclo struct {
					MinComplexity int `json:"min-complexity"`
				}
				Lll struct {
					LineLength int `json:"line-length"`
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &parsed); err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	s := parsed.Linters.Settings
	c := config{limits: limits{s.Funlen.Lines, s.Gocyclo.MinComplexity, s.Lll.LineLength}}
	if c.limits.functionLines == 0 || c.limits.complexity == 0 || c.limits.lineLength == 0 {
		return nil, errors.New(configFile + ": the settings of funlen, gocyclo and lll need limits")
	}
	var ok, closed bool
	c.before, c.exclusions, ok = strings.Cut(string(text), firstLine)
	c.exclusions, c.after, closed = strings.Cut(c.exclusions, lastLine)
	if !ok || !closed {
		return nil, fmt.Errorf("%s: the exclusions need these two lines:\n%s%s", configFile, firstLine, lastLine)
	}
	return &c, nil
}

// staleExclusions returns an error text if the exclusions are not those of the tree.
func (c *config) staleExclusions(t *tree) []string {
	if c.exclusions == exclusions(t) {
		return nil
	}
	return []string{configFile + " excludes other files than those with findings; run: go run ./scripts/ratchet lower"}
}

func (c *config) writeExclusions(root string, t *tree) error {
	text := c.before + firstLine + exclusions(t) + lastLine + c.after
	return os.WriteFile(filepath.Join(root, configFile), []byte(text), 0o600)
}

// exclusions returns an exclusion for each file that breaks a rule of the linter.
func exclusions(t *tree) string {
	files := map[string][]string{"forbidigo": t.sleepers}
	for _, f := range t.findings {
		files[f.rule] = append(files[f.rule], f.file)
	}
	var text strings.Builder
	for _, linter := range []string{"funlen", "gocyclo", "lll", "forbidigo"} {
		match := ""
		if linter == "forbidigo" {
			match = `, text: time\.Sleep`
		}
		slices.Sort(files[linter])
		for _, file := range slices.Compact(files[linter]) {
			fmt.Fprintf(&text, "      - {linters: [%s], path: '^%s$'%s}\n", linter, regexp.QuoteMeta(file), match)
		}
	}
	return text.String()
}
