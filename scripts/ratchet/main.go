// Command ratchet counts the places that break a style rule. The committed counts may only fall.
//
// counts.txt has a line for each place with findings: path, rule, number. Two kinds of rules exist:
//   - Rules of the linter are counted by file: funlen, gocyclo, lll and sleep. The last is time.Sleep in a test
//     outside a bubble of testing/synctest. Limits come from .golangci.yml, which excludes the counted files.
//   - Rules of language are counted by directory. Package prose describes them.
//
// The constant usage describes the commands.
package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

const usage = `ratchet counts the places that break a style rule. Run it at the root of the project.

  go run ./scripts/ratchet                 compare the tree with the committed counts
  go run ./scripts/ratchet lower           write lower counts; fail if any count rose
  go run ./scripts/ratchet move            write counts after code moved between files; fail if the total of a rule rose
  go run ./scripts/ratchet list [PATH]...  print the findings below the paths, as file:line: rule: text

lower and move write scripts/ratchet/counts.txt and the generated exclusions of .golangci.yml. After a merge with
conflicts in them, keep the higher counts and run lower. If counts.txt does not exist, lower writes all counts.
`

func main() {
	if err := run(".", os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run executes one command on the tree below root.
func run(root string, args []string, out io.Writer) error {
	command := "check"
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	switch {
	case slices.Contains([]string{"help", "-h", "-help", "--help"}, command):
		_, err := io.WriteString(out, usage)
		return err
	case !slices.Contains([]string{"check", "lower", "move", "list"}, command), len(args) > 0 && command != "list":
		return fmt.Errorf("unknown arguments: %s\n%s", strings.Join(append([]string{command}, args...), " "), usage)
	}
	config, err := readConfig(root)
	if err != nil {
		return err
	}
	tree, err := readTree(root, config.limits)
	if err != nil {
		return err
	}
	if command == "list" {
		return tree.list(args, out)
	}
	committed, err := readCounts(root)
	if err != nil {
		return err
	}
	now := tree.counts()
	if committed == nil && command != "check" {
		committed = now
	}
	risen, fallen := compare(committed, now)
	switch command {
	case "check":
		if problems := append(describe(risen, fallen), config.staleExclusions(tree)...); len(problems) > 0 {
			return fmt.Errorf("the counts changed\n%s", strings.Join(problems, "\n"))
		}
		_, err := fmt.Fprintln(out, "places that break a style rule:", now.totals())
		return err
	case "move":
		risen, _ = compare(committed.byRule(), now.byRule())
	}
	if len(risen) > 0 {
		return fmt.Errorf("counts may only fall\n%s", strings.Join(describe(risen, nil), "\n"))
	}
	if err := now.write(root); err != nil {
		return err
	}
	return config.writeExclusions(root, tree)
}
