// Package flags runs programs whose variables are also flags. CLUSTERPASS_LOG_LEVEL=WARN, --log-level=WARN and
// --log-level WARN mean the same. The flag overrides the variable.
package flags

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/clusterpass/clusterpass/shared/config"
)

// Main prints help or the version, or loads cfg from flags and environment, and calls run. It exits with 2 for a bad
// flag or variable, 1 if run fails.
func Main(about string, cfg any, run func() error) {
	os.Exit(exitCode(os.Args[1:], os.Stdout, os.Stderr, about, cfg, run))
}

func exitCode(args []string, out, errOut io.Writer, about string, cfg any, run func() error) int {
	return config.ExitCode(errOut, cfg, func() (done bool, err error) {
		err = parse(args, cfg)
		switch {
		case errors.Is(err, errVersion):
			config.PrintVersion(out)
			return true, nil
		case errors.Is(err, pflag.ErrHelp):
			about += "\n\nEach variable is also a flag: --name value or --name=value."
			config.Help(out, about, cfg, func(f config.Field) string { return "--" + name(f) })
			return true, nil
		}
		return false, err
	}, run)
}

var errVersion = errors.New("the version was asked for")

// parse sets the variables of flags. It returns pflag.ErrHelp if args ask for help, and errVersion for the version.
func parse(args []string, cfg any) error {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	wantsVersion := set.Bool("version", false, "")
	for _, f := range config.Fields(cfg) {
		flag := set.VarPF(variable(f.Variable), name(f), "", "")
		if f.IsBool {
			flag.NoOptDefVal = "true"
		}
	}
	if err := set.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return err
	} else if err != nil {
		return fmt.Errorf("%w; see --help", err)
	}
	switch rest := set.Args(); {
	case *wantsVersion:
		return errVersion
	case len(rest) == 0:
		return nil
	case rest[0] == "help":
		return pflag.ErrHelp
	case slices.Contains([]string{"true", "false"}, rest[0]):
		return fmt.Errorf("argument %q has no flag: the value of a flag that is true or false follows =, as in --name=%s; "+
			"see --help", rest[0], rest[0])
	default:
		return fmt.Errorf("argument %q has no flag: want --name value or --name=value; see --help", rest[0])
	}
}

func name(f config.Field) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(f.Variable, config.Prefix), "_", "-"))
}

// variable is the environment variable that a flag sets. It implements pflag.Value.
type variable string

// Set implements pflag.Value.
func (v variable) Set(value string) error { return os.Setenv(string(v), value) }

// String implements pflag.Value. The value itself may be a secret.
func (v variable) String() string { return "" }

// Type implements pflag.Value.
func (v variable) Type() string { return "string" }
