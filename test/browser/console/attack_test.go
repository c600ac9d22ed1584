package console

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// argumentsOf runs a command of the console in a shell, with programs that print their arguments. A comment has none.
func argumentsOf(t *testing.T, command string) []string {
	t.Helper()
	const programs = `kubectl() { printf '%s\0' kubectl "$@"; }; grep() { cat; printf '%s\0' grep "$@"; }` + "\n"
	cmd := exec.CommandContext(t.Context(), "bash", "-c", programs+command)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	if files, err := os.ReadDir(cmd.Dir); err != nil || len(files) > 0 {
		t.Errorf("%s makes %v, %v", command, files, err)
	}
	if len(out) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

func consolePath(segments ...string) string {
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return "/console/" + strings.Join(segments, "/")
}

func withQuery(path string, parameters ...string) string {
	values := url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		values.Add(parameters[i], parameters[i+1])
	}
	return path + "?" + values.Encode()
}

func objectPath(cluster, resource, namespace, name string) string {
	return consolePath("objects", cluster, "core", "v1", resource, namespace, name)
}

// kubectlIn returns the arguments of a command in the context of a cluster.
func kubectlIn(cluster string, args ...string) []string {
	return append([]string{"kubectl", "--context", cluster}, args...)
}

// TestCommandsOfHostileURL fails if a shell runs a part of a shared URL in a command that the console shows. It also
// fails if kubectl would read a part as an option. A user who pastes the command could lose a token.
func TestCommandsOfHostileURL(t *testing.T) {
	const quotes, control = `a'b"$(touch ran)` + "`touch ran`", "a\nb\u202ec\x1b[31m\\'"
	terminal, table := consolePath("terminal", "member1", "shop", "web"), consolePath("fleet", "core", "v1", "configmaps")
	tests := []struct {
		path string
		want []string // none: the console shows a comment
	}{
		{objectPath("member1", "configmaps", "shop", quotes),
			kubectlIn("member1", "describe", "configmaps", quotes, "-n", "shop")},
		{objectPath("member1", "configmaps", "shop", control),
			kubectlIn("member1", "describe", "configmaps", control, "-n", "shop")},
		{objectPath("member1", "configmaps", quotes, "a"), kubectlIn("member1", "describe", "configmaps", "a", "-n", quotes)},
		{objectPath("member1", "configmaps", "shop", "--server=https:evil.example.com"), nil},
		{objectPath("member1", "configmaps", "shop", "--watch"), nil}, // an option that the console uses
		{objectPath("member1", "configmaps", "--kubeconfig=x", "a"), nil},
		{objectPath("member1", "--raw=x", "shop", "a"), nil},
		{objectPath("--as=admin", "configmaps", "shop", "a"), nil},
		{withQuery(terminal, "container", quotes),
			kubectlIn("member1", "exec", "-n", "shop", "-it", "web", "-c", quotes, "--", "sh")},
		{withQuery(terminal, "container", "--server=x"), nil},
		{withQuery(terminal, "command", "echo", "command", quotes, "command", "--server=x"),
			kubectlIn("member1", "exec", "-n", "shop", "-it", "web", "--", "echo", quotes, "--server=x")},
		{withQuery(terminal, "mode", "debug", "image", "x;touch ran"),
			kubectlIn("member1", "debug", "-n", "shop", "-it", "web", "--image=x;touch ran")},
		{consolePath("terminal", "member1", "shop", "-it"), nil},
		{consolePath("terminal", "member1", "shop", "--"), nil},
		{withQuery(table, "cluster", "member1", "namespace", "shop", "labelSelector", "app="+quotes),
			kubectlIn("member1", "get", "configmaps", "-n", "shop", "-l", "app="+quotes)},
		{withQuery(table, "cluster", "member1", "q", "--file=x "+quotes),
			append(kubectlIn("member1", "get", "configmaps", "-A"), "grep", "-iF", "-e", "--file=x",
				"grep", "-iF", "-e", `a'b"$(touch`, "grep", "-iF", "-e", "ran)`touch", "grep", "-iF", "-e", "ran`")},
		{withQuery(table, "cluster", "member1", "namespace", "--server=x"), nil},
		{withQuery(consolePath("fleet"), "cluster", "--server=x"), nil},
		{withQuery(consolePath("logs"), "pod", "member1/shop/"+quotes+"/main"),
			kubectlIn("member1", "logs", "-n", "shop", quotes, "-c", "main", "--follow", "--tail=200")},
		{withQuery(consolePath("logs"), "pod", "member1/shop/--server=x/main"), nil},
		{withQuery(consolePath("logs"), "pod", "member1/shop/web/--server=x"), nil},
	}
	paths := make([]string, len(tests))
	for i, tt := range tests {
		paths[i] = tt.path
	}
	list, err := json.Marshal(paths)
	if err != nil {
		t.Fatal(err)
	}
	s := startAsOwner(t, "hostile-url.mjs", "PATHS="+string(list))
	for _, tt := range tests {
		line := s.WaitForLine("step with a command", func(line string) bool { return strings.HasPrefix(line, "step ") })
		command := strings.TrimPrefix(line, "step ")
		got := argumentsOf(t, command)
		if !slices.Equal(got, tt.want) || tt.want == nil && !strings.HasPrefix(command, "# There is no command") {
			t.Errorf("%s: the command %s has\n%q, want\n%q", tt.path, command, got, tt.want)
		}
		s.next("")
	}
	s.end()
}

// TestDotsInURLLeadNowhere fails if a shared URL makes the page send a request to another path of the API, with the
// rights of the user.
func TestDotsInURLLeadNowhere(t *testing.T) {
	const refused, none = "cannot be a name in a path", "The console has no such page."
	tests := [][2]string{
		{"/console/fleet/core/v1/configmaps?cluster=..", refused},
		{"/console/fleet/core/v1/configmaps?cluster=member1&namespace=..", refused},
		{"/console/fleet/core/v1/configmaps?cluster=member1&namespace=a/../../..", refused},
		{"/console/fleet?cluster=../member1", refused},
		{"/console/logs?pod=../../secrets", refused},
		{"/console/logs?namespace=..&cluster=member1&labelSelector=a", refused},
		{"/console/objects/member1/core/v1/configmaps/default/%252e%252e", refused},
		{"/console/objects/member1/core/v1/configmaps/default/..%2f..%2fsecrets%2fa", refused},
		{"/console/objects/..%2f..%2fmember1/core/v1/configmaps/default/a", refused},
		{"/console/objects/member1/core/v1%2fnamespaces/configmaps/default/a", refused},
		{"/console/objects/member1/..%2f../v1/configmaps/default/a", refused},
		{"/console/terminal/%252e%252e/default/a", refused},
		{"/console/objects/member1/core/v1/configmaps/%2e%2e/a", none}, // the browser itself removes segments
		{"/console/objects/member1/core/../../v1/configmaps/a", none},
	}
	list, err := json.Marshal(tests)
	if err != nil {
		t.Fatal(err)
	}
	s := startAsOwner(t, "dots.mjs", "TESTS="+string(list))
	s.end()
}

// TestEndlessAnswerIsCut fails if a member can fill the memory of the browser by an answer that does not end.
func TestEndlessAnswerIsCut(t *testing.T) {
	const mostRead = 384 << 20 // the console reads at most 257 MiB, and a part stays in buffers
	chunk := bytes.Repeat([]byte("endless "), 8<<10)
	written := make(chan int, 3)
	evil := clustertest.NewStreamingMember(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/configmaps/error"):
			w.WriteHeader(http.StatusInternalServerError)
		case strings.HasSuffix(r.URL.Path, "/log") && r.URL.Query().Has("limitBytes"): // the download
		case !strings.HasSuffix(r.URL.Path, "/configmaps/body"):
			_, _ = w.Write([]byte(`{"major":"1","minor":"36","gitVersion":"v1.36.0"}`))
			return
		}
		total := 0
		for n, err := 0, error(nil); err == nil && total < 2*mostRead; total += n {
			n, err = w.Write(chunk)
		}
		written <- total
	})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, evil.Kubeconfig(`{token: unused}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := e2e.CLI(t, "", "cluster", "add", "endless", "--kubeconfig", file, "--skip-check", "--identity",
		"impersonate"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = e2e.CLI(t, "", "cluster", "remove", "endless") })
	s := startAsOwner(t, "endless.mjs")
	s.end()
	for range 3 {
		if n := <-written; n > mostRead {
			t.Errorf("the member could send %d bytes", n)
		}
	}
}

// TestNextSignInKeepsUsersApart fails if a page sends the token of a former sign-in, or shows to one user what another
// one has typed. It also fails if the same user loses a text by signing in again.
func TestNextSignInKeepsUsersApart(t *testing.T) {
	namespace := e2e.NewNamespace(t, "member1")
	if _, err := e2e.DirectClient(t, "member1").CoreV1().ConfigMaps(namespace).Create(t.Context(),
		configMap("settings", map[string]string{"colour": "red"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	env := []string{"NAMESPACE=" + namespace}
	var names []string
	for variable, user := range map[string]string{"FIRST": "ann", "SECOND": "ann", "OTHER": "bob"} {
		name := e2e.UniqueName(t)
		pass, err := json.Marshal(e2e.CreatePass(t, name, "--user", user, "--group", "system:masters", "--cluster", "*",
			"--verb", "*"))
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, variable+"="+string(pass), variable+"_NAME="+name)
		names = append(names, name)
	}
	s := start(t, "users.mjs", e2e.Shared(t).Kubeconfig, env...)
	for range 2 {
		line := s.Line("step revoke ")
		name := strings.TrimPrefix(line, "step revoke ")
		if !slices.Contains(names, name) {
			t.Fatalf("the script asks to revoke %s", name)
		}
		if out, err := e2e.CLI(t, "", "pass", "revoke", name); err != nil {
			t.Fatalf("%s%v", out, err)
		}
		s.next("")
	}
	s.end()
}
