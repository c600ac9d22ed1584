package flags

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/version"
)

type sample struct {
	Store string `envconfig:"CLUSTERPASS_STORE" required:"true" desc:"Where things are kept." example:"dir:/var/lib/x"`
	Max   int    `envconfig:"CLUSTERPASS_MAX_STREAMS" default:"3" max:"10" desc:"How many." example:"3"`
	On    bool   `envconfig:"CLUSTERPASS_ON" desc:"Whether." example:"true"`
}

// TestFlags: people type flags as every Kubernetes program accepts them, and errors must name the right form.
func TestFlags(t *testing.T) {
	const usage = "want --name value or --name=value; see --help\n"
	for _, tt := range []struct {
		args, environment string // environment is the value of CLUSTERPASS_MAX_STREAMS
		want              sample
		wantErr           string
	}{
		{args: "--store=x", want: sample{"x", 3, false}},
		{args: "--store x", want: sample{"x", 3, false}},
		{args: "--store dir:a=b --max-streams 4", want: sample{"dir:a=b", 4, false}},
		{args: "--store x", environment: "5", want: sample{"x", 5, false}},
		{args: "--store x --max-streams 4", environment: "5", want: sample{"x", 4, false}},
		{args: "--store x --store y", want: sample{"y", 3, false}},
		{args: "--on --store x", want: sample{"x", 3, true}},
		{args: "--on=true --store x", want: sample{"x", 3, true}},
		{args: "--on=false --store x", want: sample{"x", 3, false}},
		{
			args: "--store x --on false",
			wantErr: `argument "false" has no flag: the value of a flag that is true or false follows =, as in --name=false; ` +
				"see --help\n",
		},
		{args: "--store", wantErr: "flag needs an argument: --store; see --help\n"},
		{args: "--stoar=secret", wantErr: "unknown flag: --stoar; see --help\n"},
		{args: "--stoar secret", wantErr: "unknown flag: --stoar; see --help\n"},
		{args: "-store=x", wantErr: "unknown shorthand flag: 's' in -store=x; see --help\n"},
		{args: "x", wantErr: `argument "x" has no flag: ` + usage},
		{args: "--store x y", wantErr: `argument "y" has no flag: ` + usage},
		{
			args:    "--store x --max-streams 11",
			wantErr: "CLUSTERPASS_MAX_STREAMS: want at most 10; for example CLUSTERPASS_MAX_STREAMS=3\n",
		},
	} {
		t.Run(tt.args, func(t *testing.T) {
			for _, v := range []string{"STORE", "MAX_STREAMS", "ON"} {
				t.Setenv("CLUSTERPASS_"+v, "") // restores what flags set
				os.Unsetenv("CLUSTERPASS_" + v)
			}
			if tt.environment != "" {
				t.Setenv("CLUSTERPASS_MAX_STREAMS", tt.environment)
			}
			var out, errOut bytes.Buffer
			var got *sample
			cfg := &sample{}
			code := exitCode(strings.Fields(tt.args), &out, &errOut, "A program.", cfg, func() error { got = cfg; return nil })
			if errOut.String() != tt.wantErr || (code == 2) != (tt.wantErr != "") {
				t.Errorf("exit %d, %q; want %q", code, errOut.String(), tt.wantErr)
			}
			if tt.wantErr == "" && (got == nil || *got != tt.want) || tt.wantErr != "" && got != nil {
				t.Errorf("runs with %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestHelp: each form of asking for help prints all flags, also if a required variable is missing.
func TestHelp(t *testing.T) {
	for _, args := range []string{"--help", "-h", "help", "--max-streams 4 --help"} {
		var out, errOut bytes.Buffer
		t.Setenv("CLUSTERPASS_MAX_STREAMS", "3") // restores what flags set
		code := exitCode(strings.Fields(args), &out, &errOut, "A program.", &sample{}, func() error {
			t.Error("the program runs")
			return nil
		})
		if code != 0 || errOut.Len() > 0 {
			t.Errorf("%s: exit %d, %s", args, code, &errOut)
		}
		for _, want := range []string{"A program.", "--store ", "--max-streams ", "--on ", "CLUSTERPASS_MAX_STREAMS "} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: help lacks %q:\n%s", args, want, &out)
			}
		}
	}
}

// TestVersion: people who report a fault are asked for the version, before anything is configured.
func TestVersion(t *testing.T) {
	var out, errOut bytes.Buffer
	code := exitCode([]string{"--version"}, &out, &errOut, "A program.", &sample{}, func() error {
		t.Error("the program runs")
		return nil
	})
	if code != 0 || errOut.Len() > 0 || !strings.HasSuffix(out.String(), version.Get().String()+"\n") {
		t.Errorf("exit %d, %q, %s", code, &out, &errOut)
	}
}
