package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
esac
`

const fakeSAM = `#!/bin/sh
echo "sam $* $BUILD_VERSION" >> "$(dirname "$0")/calls"
`

const fakeGoVersion = `#!/bin/sh
[ "$1" != version ] || printf '\tpath\tx\n\tmod\texample.com/x\tv0.0.0-1\n'
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
func (c *checkout) deploy(tag string) (out, calls string, code int) {
	c.t.Helper()
	_ = os.Remove(filepath.Join(c.bin, "calls"))
	cmd := c.command("scripts/deploy", "gateway", "bridges", tag, "arm64")
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

// A deployment must use the image of the same checkout, by its digest, whatever its tag names later.
func TestDeployPassesTheDigest(t *testing.T) {
	c := newCheckout(t)
	c.write(c.bin, "roleExists", "")
	tag := c.revision() + "-arm64"
	missing := "bridges:" + tag + " is not found; push it with make image"
	if out, calls, code := c.deploy(""); code != 1 || !strings.Contains(out, missing) || strings.Contains(calls, "sam") {
		t.Errorf("without an image: code %d, calls\n%soutput\n%s", code, calls, out)
	}
	c.write(c.bin, "images", tag+"@"+newDigest+"\nv1@"+oldDigest)
	const first = "sam deploy --stack-name gateway --resolve-s3 --capabilities CAPABILITY_IAM CAPABILITY_NAMED_IAM " +
		"CAPABILITY_AUTO_EXPAND --parameter-overrides BridgeDigest="
	for _, tt := range []struct{ tag, want string }{
		{"", first + newDigest + " --guided v0.0.0-1\n"},
		{"v1", first + oldDigest + " --guided v0.0.0-1\n"},
		{"none", strings.TrimSuffix(first, "--parameter-overrides BridgeDigest=") + "--guided v0.0.0-1\n"},
	} {
		if out, calls, code := c.deploy(tt.tag); code != 0 || !strings.Contains(calls, "sam build v0.0.0-1\n"+tt.want) {
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
		"string":   `parameter_overrides = "Prefix=\"a\" BridgeDigest=\"DIGEST\" LogLevel=\"WARN\""` + "\n",
		"array":    "parameter_overrides = [\n  \"BridgeDigest=DIGEST\",\n  \"LogLevel=WARN\",\n]\n",
		"line":     "parameter_overrides = [\"BridgeDigest=DIGEST\", \"LogLevel=\"]\n",
		"table":    "BridgeDigest = \"DIGEST\"\nLogLevel = \"WARN\"\n",
		"unquoted": "parameter_overrides = \"BridgeDigest=DIGEST LogLevel=WARN\"\n",
		"last":     "parameter_overrides = \"LogLevel=WARN BridgeDigest=DIGEST\"\n",
	} {
		for _, old := range []string{oldDigest, "sha256:0", ""} {
			t.Run(name+", "+old, func(t *testing.T) {
				c.write(c.dir, "samconfig.toml", strings.ReplaceAll(config, "DIGEST", old))
				out, calls, code := c.deploy("")
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
	c.write(c.dir, "samconfig.toml", "parameter_overrides = \"LogLevel=WARN\"\n")
	if out, _, code := c.deploy(""); code != 1 || !strings.Contains(out, "add BridgeDigest="+newDigest) {
		t.Errorf("without a digest in samconfig.toml: code %d, output\n%s", code, out)
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
			out, calls, code := c.deploy("")
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
