// Command style prints the places that break a rule of style, and fails if there are any. It checks the language of
// comments and docs (package prose), the width of docs, and time.Sleep in tests outside of testing/synctest.
package main

import (
	"fmt"
	"io"
	"os"
	"slices"
)

const usage = `style prints the places that break a rule of style, as FILE:LINE: RULE: TEXT. Run it at the root.

  go run ./scripts/style [PATH]...

Without a PATH it reads the whole project. It fails if there are findings.
`

func main() {
	if err := run(".", os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(root string, paths []string, out io.Writer) error {
	if slices.ContainsFunc(paths, func(arg string) bool { return arg == "-h" || arg == "--help" }) {
		_, err := io.WriteString(out, usage)
		return err
	}
	tree, err := readTree(root)
	if err != nil {
		return err
	}
	n, err := tree.print(paths, out)
	if err != nil {
		return err
	}
	if n > 0 {
		return fmt.Errorf("%d places break a rule of style; CONTRIBUTING.md lists the rules", n)
	}
	return nil
}
