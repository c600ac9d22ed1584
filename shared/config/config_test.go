package config

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

type embedded struct {
	Stores string `envconfig:"CLUSTERPASS_STORE" required:"true" desc:"Where things are kept." example:"dir:/var/lib/x"`
}

type sample struct {
	embedded
	Wait  time.Duration `envconfig:"CLUSTERPASS_WAIT" default:"5s" min:"1s" desc:"How long to wait." example:"10s"`
	On    bool          `envconfig:"CLUSTERPASS_ON" desc:"Whether." example:"true"`
	Token hexToken      `envconfig:"CLUSTERPASS_TOKEN" secret:"true" desc:"A secret." example:"00ff"`
	Max   int           `envconfig:"CLUSTERPASS_MAX" default:"3" desc:"How many." example:"3"`
	Mode  string        `envconfig:"CLUSTERPASS_MODE" desc:"How: fast or none. Default: fast on Mondays." example:"fast"`
}

type hexToken string

func (h *hexToken) Decode(v string) error {
	if strings.Trim(v, "0123456789abcdef") != "" {
		return errors.New("want hexadecimal digits")
	}
	*h = hexToken(v)
	return nil
}

func (s *sample) Validate() error {
	if s.Max > 10 {
		return &Error{"CLUSTERPASS_MAX", "more than 10", "3"}
	}
	return nil
}

var exitCases = []struct {
	name     string
	env      map[string]string
	parse    func() (done bool, err error)
	run      error
	short    string
	wantCode int
	wantErr  string
}{
	{name: "good", env: map[string]string{"STORE": "dir:x"}, wantCode: 0},
	{
		name: "run fails", env: map[string]string{"STORE": "dir:x"}, run: errors.New("boom"), wantCode: 1,
		wantErr: "error: boom\n",
	},
	{
		name: "missing", wantCode: 2,
		wantErr: "CLUSTERPASS_STORE: is not set; for example CLUSTERPASS_STORE=dir:/var/lib/x\n",
	},
	{
		name: "duration", env: map[string]string{"STORE": "x", "WAIT": "long"}, wantCode: 2,
		wantErr: "CLUSTERPASS_WAIT: \"long\": want a duration; for example CLUSTERPASS_WAIT=10s\n",
	},
	{
		name: "too short", env: map[string]string{"STORE": "x", "WAIT": "-1s"}, wantCode: 2,
		wantErr: "CLUSTERPASS_WAIT: want at least 1s; for example CLUSTERPASS_WAIT=10s\n",
	},
	{
		name: "run finds a bad value", env: map[string]string{"STORE": "x"},
		run: &Error{"CLUSTERPASS_STORE", "cannot be opened", "y"}, wantCode: 2,
		wantErr: "CLUSTERPASS_STORE: cannot be opened; for example CLUSTERPASS_STORE=y\n",
	},
	{
		name: "bool", env: map[string]string{"STORE": "x", "ON": "maybe"}, wantCode: 2,
		wantErr: "CLUSTERPASS_ON: \"maybe\": want true or false; for example CLUSTERPASS_ON=true\n",
	},
	{
		name: "secret", env: map[string]string{"STORE": "x", "TOKEN": "hush!"}, wantCode: 2,
		wantErr: "CLUSTERPASS_TOKEN: want hexadecimal digits; for example CLUSTERPASS_TOKEN=00ff\n",
	},
	{
		name: "validate", env: map[string]string{"STORE": "x", "MAX": "11"}, wantCode: 2,
		wantErr: "CLUSTERPASS_MAX: more than 10; for example CLUSTERPASS_MAX=3\n",
	},
	{
		name: "a bad argument", parse: func() (bool, error) { return false, errors.New("unknown flag") }, wantCode: 2,
		wantErr: "unknown flag\n",
	},
	{name: "only parsed", parse: func() (bool, error) { return true, nil }, wantCode: 0},
	{name: "not by its short name", env: map[string]string{"STORE": "x"}, short: "99"},
}

// TestExitCode fails if a bad variable is not explained, or reveals a secret.
func TestExitCode(t *testing.T) {
	for _, tt := range exitCases {
		t.Run(tt.name, func(t *testing.T) {
			for _, v := range []string{"STORE", "WAIT", "ON", "TOKEN", "MAX"} {
				t.Setenv("CLUSTERPASS_"+v, "") // restores what flags set
				os.Unsetenv("CLUSTERPASS_" + v)
				if val, ok := tt.env[v]; ok {
					t.Setenv("CLUSTERPASS_"+v, val)
				}
			}
			if tt.short != "" {
				t.Setenv("MAX", tt.short)
			}
			if tt.parse == nil {
				tt.parse = func() (bool, error) { return false, nil }
			}
			var errOut bytes.Buffer
			cfg := &sample{}
			code := ExitCode(&errOut, cfg, tt.parse, func() error { return tt.run })
			if code != tt.wantCode || errOut.String() != tt.wantErr {
				t.Errorf("exit %d, %q; want %d, %q", code, errOut.String(), tt.wantCode, tt.wantErr)
			}
			if tt.name == "good" && cfg.Wait != 5*time.Second {
				t.Errorf("default of WAIT is %v", cfg.Wait)
			}
		})
	}
}

// TestHelp: --help must list each variable with its default, so that users need no other page.
func TestHelp(t *testing.T) {
	var out bytes.Buffer
	Help(&out, "A program.", &sample{}, func(f Field) string { return "--flag-of-" + f.Variable })
	for _, want := range []string{
		"A program.", "CLUSTERPASS_STORE  --flag-of-CLUSTERPASS_STORE  Where", "required", "default: 5s", "example: 10s",
		"Whether. (default: none; example: true)\n", "Default: fast on Mondays. (example: fast)\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help lacks %q:\n%s", want, out.String())
		}
	}
}
