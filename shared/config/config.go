// Package config reads a program's configuration from the environment, and prints it for --help. Package flags adds
// command line flags, which functions do not link: CLUSTERPASS_LOG_LEVEL=WARN and --log-level=WARN mean the same.
//
// A configuration is a struct for envconfig. Its fields have more tags:
//   - desc, example: text for --help. "Default:" introduces a default that the default tag does not have.
//   - secret:"true": errors must not contain the value.
//   - min, max: the bounds of a number or duration.
//
// The envconfig tag is the full name. With a prefix, a field KUBECONFIG would also read the user's own KUBECONFIG.
package config

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kelseyhightower/envconfig"

	"github.com/clusterpass/clusterpass/shared/version"
)

// Prefix begins the name of every variable.
const Prefix = "CLUSTERPASS_"

// Validator is implemented by configurations whose fields depend on each other. Validate returns a *Error.
type Validator interface{ Validate() error }

// Error describes the problem of one variable.
type Error struct{ Variable, Problem, Example string }

func (e *Error) Error() string {
	s := e.Variable + ": " + e.Problem
	if e.Example != "" {
		s += "; for example " + e.Variable + "=" + e.Example
	}
	return s
}

// Load fills cfg, a pointer to a struct, from the environment. Its errors are *Error.
func Load(cfg any) error {
	for _, f := range Fields(cfg) {
		if f.required && os.Getenv(f.Variable) == "" {
			return &Error{f.Variable, "is not set", f.example}
		}
	}
	err := envconfig.Process("", cfg)
	var parse *envconfig.ParseError
	if errors.As(err, &parse) {
		for _, f := range Fields(cfg) {
			if f.Variable == parse.KeyName {
				problem := fmt.Sprintf("%q: %v", parse.Value, reason(parse))
				if f.secret {
					problem = reason(parse)
				}
				return &Error{f.Variable, problem, f.example}
			}
		}
	}
	if err != nil {
		return err
	}
	if err := checkRanges(reflect.ValueOf(cfg).Elem()); err != nil {
		return err
	}
	if v, ok := cfg.(Validator); ok {
		return v.Validate()
	}
	return nil
}

func checkRanges(v reflect.Value) error {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			if err := checkRanges(v.Field(i)); err != nil {
				return err
			}
			continue
		}
		if least, ok := f.Tag.Lookup("min"); ok && v.Field(i).Int() < bound(f.Type, least) {
			return &Error{f.Tag.Get("envconfig"), "want at least " + least, f.Tag.Get("example")}
		}
		if most, ok := f.Tag.Lookup("max"); ok && v.Field(i).Int() > bound(f.Type, most) {
			return &Error{f.Tag.Get("envconfig"), "want at most " + most, f.Tag.Get("example")}
		}
	}
	return nil
}

func bound(of reflect.Type, tag string) int64 {
	var n int64
	var err error
	if of == reflect.TypeFor[time.Duration]() {
		var d time.Duration
		d, err = time.ParseDuration(tag)
		n = int64(d)
	} else {
		n, err = strconv.ParseInt(tag, 10, 64)
	}
	if err != nil {
		panic(err) // an error of the program: the tag is malformed
	}
	return n
}

// Address returns a *Error unless the value of a variable is host:port with a port of 0 to 65535.
func Address(variable, value string) error {
	_, port, err := net.SplitHostPort(value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return &Error{variable, fmt.Sprintf("%q: want host:port", value), "127.0.0.1:8443"}
	}
	return nil
}

// URL is the base URL of a gateway: https, a host and an optional port.
type URL string

// Decode implements envconfig.Decoder.
func (u *URL) Decode(v string) error {
	parsed, err := url.Parse(v)
	if v != "" && (err != nil || parsed.Host == "" || *parsed != url.URL{Scheme: "https", Host: parsed.Host}) {
		return errors.New("want https:// and a host, without a path")
	}
	*u = URL(v)
	return nil
}

// reason returns the cause of a parse error. It omits the value, which the errors of strconv contain.
func reason(e *envconfig.ParseError) string {
	switch e.TypeName {
	case "bool":
		return "want true or false"
	case "int", "int64", "uint", "uint64":
		return "want a number"
	case "time.Duration":
		return "want a duration"
	case "slog.Level":
		return "want DEBUG, INFO, WARN or ERROR"
	}
	return e.Err.Error()
}

// Main runs a program without flags: it prints help or the version, or loads cfg from the environment and calls run. It
// exits with 2 for an argument or a bad variable, 1 if run fails.
func Main(about string, cfg any, run func() error) {
	os.Exit(ExitCode(os.Stderr, cfg, func() (done bool, err error) {
		if len(os.Args) == 1 {
			return false, nil
		}
		switch {
		case os.Args[1] == "--version":
			PrintVersion(os.Stdout)
			return true, nil
		case slices.Contains([]string{"-h", "-help", "--help", "help"}, os.Args[1]):
			Help(os.Stdout, about, cfg, func(Field) string { return "" })
			return true, nil
		}
		return false, fmt.Errorf("argument %q is refused: the program has no flags; see --help", os.Args[1])
	}, run))
}

// PrintVersion prints the name of the program and its build.
func PrintVersion(w io.Writer) { _, _ = fmt.Fprintln(w, filepath.Base(os.Args[0]), version.Get()) }

// ExitCode parses arguments, loads cfg from the environment and calls run. It returns the exit code of the program,
// and writes errors to errOut. After parse returns done, it returns 0.
func ExitCode(errOut io.Writer, cfg any, parse func() (done bool, err error), run func() error) int {
	done, err := parse()
	if err == nil && !done {
		err = Load(cfg)
	}
	if err != nil {
		_, _ = fmt.Fprintln(errOut, err)
		return 2
	}
	if done {
		return 0
	}
	if err := run(); err != nil {
		var invalid *Error
		if errors.As(err, &invalid) {
			_, _ = fmt.Fprintln(errOut, invalid)
			return 2
		}
		_, _ = fmt.Fprintln(errOut, "error:", err)
		return 1
	}
	return 0
}

// Help prints about and every variable of a configuration. flag returns the flag of a variable, "" for none.
func Help(w io.Writer, about string, cfg any, flag func(Field) string) {
	_, _ = fmt.Fprintf(w, "%s\n\nConfiguration:\n\n", strings.TrimSpace(about))
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range Fields(cfg) {
		_, _ = fmt.Fprintf(tw, "  %s\t", f.Variable)
		if name := flag(f); name != "" {
			_, _ = fmt.Fprintf(tw, "%s\t", name)
		}
		_, _ = fmt.Fprint(tw, f.desc)
		if notes := f.notes(); len(notes) > 0 {
			_, _ = fmt.Fprintf(tw, " (%s)", strings.Join(notes, "; "))
		}
		_, _ = fmt.Fprintln(tw)
	}
	_ = tw.Flush()
	_, _ = fmt.Fprintln(w, "\n--version prints the version.")
}

// Variables returns the names of the environment variables of a configuration, a pointer to a struct.
func Variables(cfg any) []string {
	var names []string
	for _, f := range Fields(cfg) {
		names = append(names, f.Variable)
	}
	return names
}

// Environment returns variables from which Load reads the configuration cfg, a pointer to a struct. It omits zero
// values, for which Load sets the default. A type with a Decode of its own needs a String.
func Environment(cfg any) map[string]string {
	vars := map[string]string{}
	addVariables(vars, reflect.ValueOf(cfg).Elem())
	return vars
}

func addVariables(vars map[string]string, v reflect.Value) {
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			addVariables(vars, value)
		} else if name := f.Tag.Get("envconfig"); name != "" && !value.IsZero() {
			vars[name] = format(value)
		}
	}
}

func format(v reflect.Value) string {
	if s, ok := v.Addr().Interface().(fmt.Stringer); ok {
		return s.String()
	}
	if v.Kind() != reflect.Slice {
		return fmt.Sprint(v.Interface())
	}
	var elements []string
	for i := range v.Len() {
		elements = append(elements, fmt.Sprint(v.Index(i).Interface()))
	}
	return strings.Join(elements, ",")
}

// Field describes one variable of a configuration.
type Field struct {
	Variable string
	IsBool   bool

	desc, def, example string
	required, secret   bool
}

// notes returns what --help prints after the description: whether the variable is required, its default and an example.
func (f Field) notes() (notes []string) {
	switch {
	case f.required:
		notes = append(notes, "required")
	case f.def != "":
		notes = append(notes, "default: "+f.def)
	case !strings.Contains(f.desc, "Default: "):
		notes = append(notes, "default: none")
	}
	if f.example != "" {
		notes = append(notes, "example: "+f.example)
	}
	return notes
}

// Fields lists the variables of a configuration, a pointer to a struct: embedded structs first to last.
func Fields(cfg any) []Field {
	var out []Field
	t := reflect.TypeOf(cfg)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			out = append(out, Fields(reflect.New(f.Type).Interface())...)
			continue
		}
		name := f.Tag.Get("envconfig")
		if name == "" {
			continue
		}
		out = append(out, Field{
			Variable: name, IsBool: f.Type.Kind() == reflect.Bool,
			desc: f.Tag.Get("desc"), def: f.Tag.Get("default"), example: f.Tag.Get("example"),
			required: f.Tag.Get("required") == "true", secret: f.Tag.Get("secret") == "true",
		})
	}
	return out
}
