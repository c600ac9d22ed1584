package canary

import (
	"os"
	"strings"
	"testing"
	"time"
)

func generate(t *testing.T, o Options) (string, error) {
	t.Helper()
	template, err := os.ReadFile("../../../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := Template(template, o)
	return string(text), err
}

// An operator must learn before the deployment that an argument cannot work, and what to do.
func TestOptionsAreChecked(t *testing.T) {
	given := map[string]string{"ClientCA": "a", "ControlConcurrency": "3"}
	for name, tt := range map[string]struct {
		options Options
		want    string // part of the error; "" for none
	}{
		"valid":             {Options{"AllAtOnce", 3, given, time.Now()}, ""},
		"unknown preset":    {Options{"Linear10", 0, given, time.Now()}, "set one of AllAtOnce, Canary10Percent5Minutes"},
		"no preset":         {Options{"", 2, given, time.Now()}, "CANARY= is not a preset"},
		"negative":          {Options{"AllAtOnce", -1, given, time.Now()}, "PROVISIONED=-1"},
		"more than allowed": {Options{"AllAtOnce", 4, given, time.Now()}, "raise ControlConcurrency"},
		"no value":          {Options{"AllAtOnce", 0, nil, time.Now()}, "no ClientCA; add it"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := generate(t, tt.options)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want an error with %q", err, tt.want)
			}
		})
	}
}

// After a change of template.yaml that the generator does not know, no function may stay without its alias.
func TestUnknownTemplatesAreRefused(t *testing.T) {
	template, err := os.ReadFile("../../../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ old, changed, want string }{
		{"  FleetFunction:\n", "  FleetProgram:\n", "Resources.FleetFunction.Properties is missing"},
		{"ControlFunction.Arn", "ControlProgram.Arn", "nothing refers to ControlFunction.Arn"},
		{"TargetSuffix:", "Suffix:", "TargetSuffix is missing"},
		{"Rules:", "Assertions:", "Rules is missing"},
	} {
		changed := strings.ReplaceAll(string(template), tt.old, tt.changed)
		o := Options{"AllAtOnce", 0, map[string]string{"ClientCA": "a"}, time.Now()}
		if _, err := Template([]byte(changed), o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("without %q: %v, want %q", tt.old, err, tt.want)
		}
	}
}

// A reference in a form that the generator does not replace would send all requests to new code at once.
func TestOtherReferencesAreRefused(t *testing.T) {
	template, err := os.ReadFile("../../../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const key, written = "        FleetFunction: ", "!GetAtt FleetFunction.Arn"
	if strings.Count(string(template), key+written+"\n") != 1 {
		t.Fatalf("template.yaml has no line %q", key+written)
	}
	for _, form := range []string{
		"!GetAtt [FleetFunction, Arn]", "{Fn::GetAtt: [FleetFunction, Arn]}", "{Fn::GetAtt: FleetFunction.Arn}",
		`!Sub "${FleetFunction.Arn}:1"`, `!Sub ["${FleetFunction.Arn}", {}]`, `{Fn::Sub: "a:${FleetFunction}"}`,
		"!Ref FleetFunction", "{Ref: FleetFunction}",
	} {
		changed := strings.ReplaceAll(string(template), key+written+"\n", key+form+"\n")
		o := Options{"AllAtOnce", 0, map[string]string{"ClientCA": "a"}, time.Now()}
		const want = "refers to FleetFunction instead of its alias; write !GetAtt FleetFunction.Arn"
		if _, err := Template([]byte(changed), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", form, err, want)
		}
	}
}

const lines = `parameter_overrides = """ClientCA=\"a b\" Prefix=x Authentication='{\"y
\": 1}'"""`

// With values other than SAM's, CloudFormation would refuse the deployment.
func TestParametersAreRead(t *testing.T) {
	for name, tt := range map[string]struct{ samconfig, want string }{
		"string": {
			`parameter_overrides = "ClientCA=\"a b\" Prefix=x Authentication=\"{\\\"awsIAM\\\": 1}\" DomainName=\"\""`,
			`{"awsIAM": 1}`,
		},
		"lines": {lines, "{\"y\n\": 1}"},
		"array": {`parameter_overrides = ['ClientCA="a b"', "Prefix=x", 'Authentication=a\ \"']`, `a "`},
		"table": {
			"[default.deploy.parameters.parameter_overrides]\nClientCA = \"a b\"\nPrefix = \"x\"\nAuthentication = 1", "1",
		},
		"global": {
			"[default.global.parameters]\nparameter_overrides = \"ClientCA='a b' Prefix=x Authentication=y\"", "y",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parameters([]byte("version = 0.1\n[default.deploy.parameters]\n" + tt.samconfig + "\n"))
			if err != nil || got["ClientCA"] != "a b" || got["Prefix"] != "x" || got["Authentication"] != tt.want {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	for _, samconfig := range []string{"", "x", "[default.deploy.parameters]\nparameter_overrides = 1\n"} {
		if got, err := Parameters([]byte(samconfig)); err == nil || !strings.Contains(err.Error(), "samconfig.toml") {
			t.Errorf("%q: %q, %v", samconfig, got, err)
		}
	}
}
