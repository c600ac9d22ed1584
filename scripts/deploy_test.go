package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	oldDigest = "sha256:00000000000000000000000000000000000000000000000000000000000000aa"
	newDigest = "sha256:11111111111111111111111111111111111111111111111111111111111111bb"
)

// checkout is a git repository with the scripts that deploy, and programs that play the AWS CLI, SAM and Go.
type checkout struct {
	t        *testing.T
	dir, bin string
}

// fakeAWS plays the AWS CLI. The files roleExists, roleIsHidden, roleIsRefused and images describe the account.
const fakeAWS = `#!/bin/sh
cd "$(dirname "$0")"
echo "aws $*" >> calls
case "$*" in
  *get-role*) [ -e roleExists ] && [ ! -e roleIsHidden ] ;;
  *create-service-linked-role*)
    [ ! -e roleIsRefused ] || { echo "AccessDenied" >&2; exit 254; }
    [ ! -e roleExists ] || { echo "Service role name x has been taken in this account" >&2; exit 254; } ;;
  *describe-images*)
    for image in $(cat images 2>/dev/null); do
      case "$*" in *"imageTag=${image%%@*} "*) echo "${image#*@}"; exit ;; esac
    done
    echo "ImageNotFoundException" >&2; exit 254 ;;
  *describe-repositories*) echo "registry.example.com/$4" ;;
esac
`

const fakeSAM = `#!/bin/sh
echo "sam $* $BUILD_VERSION" >> "$(dirname "$0")/calls"
`

const fakeGoVersion = `#!/bin/sh
[ "$1" != version ] || printf '\tpath\tx\n\tmod\texample.com/x\tv0.0.0-1\n'
`

// fakeGoCanary plays the generator of the template, too.
const fakeGoCanary = `#!/bin/sh
case "$*" in
  version*) printf '\tpath\tx\n\tmod\texample.com/x\tv0.0.0-1\n' ;;
  run*infra/aws/canary*)
    echo "go $*" >> "$(dirname "$0")/calls"
    case "$*" in *Canary99*) echo "CANARY=Canary99 is not a preset" >&2; exit 1 ;; esac
    echo template ;;
esac
`

// fakeGoCalls writes its calls to the file of the other programs' calls.
const fakeGoCalls = `#!/bin/sh
echo "go $*" >> "$(dirname "$0")/calls"
`

func newCheckout(t *testing.T) *checkout {
	t.Helper()
	c := &checkout{t, t.TempDir(), t.TempDir()}
	for _, name := range []string{"deploy", "image", "revision", "step"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		c.write(c.dir, "scripts/"+name, string(text))
	}
	c.write(c.bin, "aws", fakeAWS)
	c.write(c.bin, "sam", fakeSAM)
	c.write(c.bin, "go", fakeGoVersion)
	c.write(c.dir, ".gitignore", "/samconfig.toml\n")
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "--all"}, {
		"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--message", "files",
	}} {
		if out, err := c.command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return c
}

func (c *checkout) write(dir, name, text string) {
	c.t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		c.t.Fatal(err)
	}
}

func (c *checkout) command(name string, args ...string) *exec.Cmd {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), name, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "PATH="+c.bin+":"+os.Getenv("PATH"), "GIT_CONFIG_GLOBAL=/dev/null", "BUILD_VERSION=")
	return cmd
}

func (c *checkout) revision() string {
	c.t.Helper()
	out, err := c.command("scripts/revision").Output()
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// deploy returns the output of scripts/deploy, the calls of the AWS CLI and SAM, and the exit code.
func (c *checkout) deploy(tag, arch string, more ...string) (out, calls string, code int) {
	c.t.Helper()
	_ = os.Remove(filepath.Join(c.bin, "calls"))
	cmd := c.command("scripts/deploy", append([]string{"gateway", "bridges", tag, arch}, more...)...)
	text, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		c.t.Fatal(err)
	}
	called, _ := os.ReadFile(filepath.Join(c.bin, "calls"))
	return string(text), string(called), cmd.ProcessState.ExitCode()
}

// Without one revision for functions and bridge, an update replaces the functions and not the bridge.
func TestRevisionNamesTheFiles(t *testing.T) {
	c := newCheckout(t)
	clean := c.revision()
	if !regexp.MustCompile(`^[0-9a-f]{12}$`).MatchString(clean) {
		t.Errorf("a commit has the revision %q", clean)
	}
	objects, err := c.command("git", "count-objects").Output()
	if err != nil {
		t.Fatal(err)
	}
	c.write(c.dir, "new", "1")
	changed := c.revision()
	if !regexp.MustCompile(`^`+clean+`-[0-9a-f]{12}$`).MatchString(changed) || changed != c.revision() {
		t.Errorf("a changed checkout has the revisions %q and %q", changed, c.revision())
	}
	c.write(c.dir, "new", "2")
	if again := c.revision(); again == changed {
		t.Errorf("other files have the revision %q, too", again)
	}
	out, err := c.command("git", "status", "--porcelain").Output()
	if err != nil || string(out) != "?? new\n" {
		t.Errorf("the index has changed: %s%v", out, err)
	}
	// A key or password in an untracked file must not stay in the repository.
	if out, err = c.command("git", "count-objects").Output(); err != nil || string(out) != string(objects) {
		t.Errorf("the repository has %s%v, and had %s", out, err, objects)
	}
}

// With a tag that names no revision, such as latest, an update would replace the functions and not the bridge.
func TestImageIsNamedAfterTheRevision(t *testing.T) {
	c := newCheckout(t)
	c.write(c.bin, "go", fakeGoCalls)
	for _, tt := range []struct{ tag, arches, want string }{
		{"", "arm64", c.revision() + "-arm64"},
		{"", "arm64,amd64", c.revision() + "-amd64-arm64"},
		{"v1", "arm64", "v1"},
	} {
		_ = os.Remove(filepath.Join(c.bin, "calls"))
		if out, err := c.command("scripts/image", "bridges", tt.tag, tt.arches).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		calls, err := os.ReadFile(filepath.Join(c.bin, "calls"))
		want := "--push registry.example.com/bridges:" + tt.want + " "
		if err != nil || !strings.Contains(string(calls), want) {
			t.Errorf("TAG=%s ARCH=%s: calls\n%s%v, want %s", tt.tag, tt.arches, calls, err, want)
		}
	}
	track(t, "../Makefile")
	for target, want := range map[string]string{
		"image":  `scripts/image clusterpass-bridge "" arm64`,
		"deploy": `scripts/deploy clusterpass clusterpass-bridge "" arm64`,
	} {
		cmd := exec.CommandContext(t.Context(), "make", "--dry-run", "--directory", "..", target)
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TAG=") })
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("make %s: %v\n%s, want %s", target, err, out, want)
		}
	}
}

// A deployment must use the image of the same checkout, by its digest, whatever its tag names later.
func TestDeployPassesTheDigest(t *testing.T) {
	c := newCheckout(t)
	c.write(c.bin, "roleExists", "")
	tag := c.revision() + "-arm64"
	missing := "bridges:" + tag + " is not found; push it with make image"
	if out, calls, code := c.deploy("", "arm64"); code != 1 || !strings.Contains(out, missing) ||
		strings.Contains(calls, "sam") {
		t.Errorf("without an image: code %d, calls\n%soutput\n%s", code, calls, out)
	}
	c.write(c.bin, "images", tag+"@"+newDigest+"\nv1@"+oldDigest)
	const first = "sam deploy --stack-name gateway --resolve-s3 --capabilities CAPABILITY_IAM CAPABILITY_NAMED_IAM " +
		"CAPABILITY_AUTO_EXPAND --parameter-overrides Architecture=arm64"
	for _, tt := range []struct{ tag, want string }{
		{"", first + " BridgeDigest=" + newDigest + " --guided v0.0.0-1\n"},
		{"v1", first + " BridgeDigest=" + oldDigest + " --guided v0.0.0-1\n"},
		{"none", first + " --guided v0.0.0-1\n"},
	} {
		if out, calls, code := c.deploy(tt.tag, "arm64"); code != 0 ||
			!strings.Contains(calls, "sam build v0.0.0-1\n"+tt.want) {
			t.Errorf("TAG=%s: code %d, calls\n%soutput\n%s", tt.tag, code, calls, out)
		}
	}
}

// SAM ignores the parameters of samconfig.toml if the command line has any, so the digest must be written there.
func TestDeployKeepsSamconfig(t *testing.T) {
	c := newCheckout(t)
	c.write(c.bin, "roleExists", "")
	c.write(c.bin, "images", c.revision()+"-arm64@"+newDigest)
	for name, config := range map[string]string{
		"string":   `parameter_overrides = "Architecture=\"arm64\" BridgeDigest=\"DIGEST\" LogLevel=\"WARN\""` + "\n",
		"array":    "parameter_overrides = [\n  \"BridgeDigest=DIGEST\",\n  \"Architecture=arm64\",\n]\n",
		"line":     "parameter_overrides = [\"BridgeDigest=DIGEST\", \"Architecture=arm64\"]\n",
		"table":    "BridgeDigest = \"DIGEST\"\nArchitecture = \"arm64\"\n",
		"unquoted": "parameter_overrides = \"BridgeDigest=DIGEST Architecture=arm64\"\n",
		"last":     "parameter_overrides = \"Architecture=arm64 BridgeDigest=DIGEST\"\n",
	} {
		for _, old := range []string{oldDigest, "sha256:0", ""} {
			t.Run(name+", "+old, func(t *testing.T) {
				c.write(c.dir, "samconfig.toml", strings.ReplaceAll(config, "DIGEST", old))
				out, calls, code := c.deploy("", "arm64")
				if code != 0 || !strings.HasSuffix(calls, "CAPABILITY_AUTO_EXPAND v0.0.0-1\n") {
					t.Errorf("code %d, calls\n%soutput\n%s", code, calls, out)
				}
				got, err := os.ReadFile(filepath.Join(c.dir, "samconfig.toml"))
				if want := strings.ReplaceAll(config, "DIGEST", newDigest); err != nil || string(got) != want {
					t.Errorf("samconfig.toml is\n%swant\n%s%v", got, want, err)
				}
			})
		}
	}
	c.write(c.dir, "samconfig.toml", "parameter_overrides = \"Architecture=arm64\"\n")
	if out, _, code := c.deploy("", "arm64"); code != 1 || !strings.Contains(out, "add BridgeDigest="+newDigest) {
		t.Errorf("without a digest in samconfig.toml: code %d, output\n%s", code, out)
	}
}

// Functions of one architecture with programs of the other fail at every call, and CloudFormation accepts them.
func TestDeployChecksTheArchitecture(t *testing.T) {
	c := newCheckout(t)
	for _, tt := range []struct {
		arch, config string
		want         string // part of the refusal; "" for none
	}{
		{"arm64", `parameter_overrides = "Architecture=\"arm64\""`, ""},
		{"amd64", `parameter_overrides = "Prefix=\"a\" Architecture=\"x86_64\""`, ""},
		{"amd64", `Architecture = "x86_64"`, ""},
		{"arm64", `parameter_overrides = "Architecture=\"x86_64\""`, "no Architecture=arm64"},
		{"amd64", `parameter_overrides = "Architecture=\"arm64\""`, "no Architecture=x86_64"},
		{"amd64", `parameter_overrides = "Architecture=\"\""`, "no Architecture=x86_64"},
		{"arm64", `parameter_overrides = "LogLevel=\"WARN\""`, "no Architecture=arm64"},
		{"amd64,arm64", `parameter_overrides = "Architecture=\"arm64\""`, "ARCH=amd64,arm64 is not"},
	} {
		t.Run(tt.arch+" "+tt.config, func(t *testing.T) {
			c.write(c.dir, "samconfig.toml", tt.config+"\n")
			out, calls, code := c.deploy("none", tt.arch)
			if (code == 0) != (tt.want == "") || !strings.Contains(out, tt.want) ||
				strings.Contains(calls, "sam") != (tt.want == "") {
				t.Errorf("code %d, calls\n%soutput\n%s", code, calls, out)
			}
		})
	}
}

// An image of both architectures fits a stack of either.
func TestDeployFindsImagesOfBothArchitectures(t *testing.T) {
	c := newCheckout(t)
	c.write(c.bin, "roleExists", "")
	c.write(c.bin, "images", c.revision()+"-amd64-arm64@"+newDigest)
	for arch, architecture := range map[string]string{"arm64": "arm64", "amd64": "x86_64"} {
		want := "--parameter-overrides Architecture=" + architecture + " BridgeDigest=" + newDigest + " --guided"
		if out, calls, code := c.deploy("", arch); code != 0 || !strings.Contains(calls, want) {
			t.Errorf("ARCH=%s: code %d, calls\n%soutput\n%s", arch, code, calls, out)
		}
	}
	for _, arches := range []string{"arm64,amd64", "amd64,arm64"} { // make image uses one name for both orders
		out, err := c.command("scripts/image", "bridges", "", arches).CombinedOutput()
		if want := "bridges:" + c.revision() + "-amd64-arm64@" + newDigest + " exists"; err != nil ||
			!strings.Contains(string(out), want) {
			t.Errorf("make image ARCH=%s: %v\n%s, want %q", arches, err, out, want)
		}
	}
}

// Without ECS's service-linked role, the first cluster of an account fails, and the deployment is rolled back.
func TestDeployCreatesTheRoleOfECS(t *testing.T) {
	for name, tt := range map[string]struct {
		account     []string
		wantCreated bool
		wantCode    int
	}{
		"missing":       {nil, true, 0},
		"there":         {[]string{"roleExists"}, false, 0},
		"there, hidden": {[]string{"roleExists", "roleIsHidden"}, true, 0},
		"refused":       {[]string{"roleIsRefused"}, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCheckout(t)
			c.write(c.bin, "images", c.revision()+"-arm64@"+newDigest)
			for _, file := range tt.account {
				c.write(c.bin, file, "")
			}
			out, calls, code := c.deploy("", "arm64")
			const create = "aws iam create-service-linked-role --aws-service-name ecs.amazonaws.com"
			if code != tt.wantCode || strings.Contains(calls, create) != tt.wantCreated ||
				strings.Contains(calls, "sam deploy") != (tt.wantCode == 0) {
				t.Errorf("code %d, calls\n%soutput\n%s", code, calls, out)
			}
			if tt.wantCode != 0 && !strings.Contains(out, "have an administrator run:\n  "+create) {
				t.Errorf("it prints\n%s", out)
			}
		})
	}
}

// A wrong argument must be refused before anything is changed in the account or in samconfig.toml. Otherwise the
// next deployment would have a digest that it did not choose.
func TestDeployChecksCanaryFirst(t *testing.T) {
	for name, tt := range map[string]struct{ canary, provisioned string }{
		"preset":      {"Canary99", ""},
		"provisioned": {"AllAtOnce", "-1"},
		"no aliases":  {"", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			const samconfig = `parameter_overrides = "Architecture=arm64 BridgeDigest=` + oldDigest + `"`
			c := newCheckout(t)
			c.write(c.bin, "go", fakeGoCanary)
			c.write(c.bin, "images", "v1@"+newDigest)
			c.write(c.dir, "samconfig.toml", samconfig)
			out, calls, code := c.deploy("v1", "arm64", tt.canary, tt.provisioned)
			if code != 1 || strings.Contains(calls, "service-linked-role") || strings.Contains(calls, "sam") {
				t.Errorf("code %d, calls\n%soutput\n%s", code, calls, out)
			}
			if got, err := os.ReadFile(filepath.Join(c.dir, "samconfig.toml")); err != nil || string(got) != samconfig {
				t.Errorf("samconfig.toml is %s%v", got, err)
			}
		})
	}
}

// A wrong argument must be refused before anything is built. No generated template may stay in the checkout, because a
// later sam build could use it.
func TestDeployWithCanary(t *testing.T) {
	for name, tt := range map[string]struct {
		canary, provisioned string
		wantCalls           []string // the calls of SAM; none if the deployment is refused
		want                string   // part of the refusal
	}{
		"plain":       {"", "", []string{"sam build v0.0.0-1", "sam deploy"}, ""},
		"canary":      {"AllAtOnce", "", []string{"sam build --template-file template-canary.yaml", "sam deploy"}, ""},
		"provisioned": {"AllAtOnce", "2", []string{"sam build --template-file template-canary.yaml", "sam deploy"}, ""},
		"no aliases":  {"", "2", nil, "set CANARY=AllAtOnce"},
		"no number":   {"AllAtOnce", "two", nil, "PROVISIONED=two is not a number"},
		"refused":     {"Canary99", "", nil, "not a preset"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCheckout(t)
			c.write(c.dir, "samconfig.toml", "parameter_overrides = \"Architecture=arm64\"\n")
			c.write(c.bin, "go", fakeGoCanary)
			out, calls, code := c.deploy("none", "arm64", tt.canary, tt.provisioned)
			if (code == 0) != (tt.wantCalls != nil) || !strings.Contains(out, tt.want) ||
				tt.wantCalls == nil && strings.Contains(calls, "sam") {
				t.Errorf("code %d, calls\n%soutput\n%s", code, calls, out)
			}
			for _, call := range tt.wantCalls {
				if !strings.Contains(calls, call) {
					t.Errorf("calls\n%swant %s", calls, call)
				}
			}
			if strings.Contains(calls, "--max-wait-duration 180") != (tt.canary != "" && len(tt.wantCalls) > 0) {
				t.Errorf("SAM's limit of time: calls\n%s", calls)
			}
			if generator := "--preset " + tt.canary + " --provisioned " + max(tt.provisioned, "0"); strings.Contains(calls,
				generator) != (tt.canary != "" && tt.provisioned != "two") {
				t.Errorf("calls\n%swant %s", calls, generator)
			}
			if _, err := os.Stat(filepath.Join(c.dir, "template-canary.yaml")); !os.IsNotExist(err) {
				t.Errorf("the generated template stays: %v", err)
			}
		})
	}
}
