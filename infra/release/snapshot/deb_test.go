package snapshot

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// packageFiles are files that the packages install.
var packageFiles = map[string][]string{
	"clusterpass": {"usr/bin/clusterpass", "usr/bin/kubectl-clusterpass", "usr/bin/kubectl_complete-clusterpass",
		"usr/share/doc/clusterpass/copyright", "usr/share/doc/clusterpass/licenses.txt"},
	"clusterpass-server": {"usr/bin/clusterpass-local", "usr/lib/systemd/system/clusterpass.service",
		"etc/clusterpass/clusterpass.env", "usr/share/doc/clusterpass-server/copyright",
		"usr/share/doc/clusterpass-server/licenses.txt"},
}

// checkDeb reads both packages. Where the test is root, dpkg installs, upgrades, removes and purges them in another
// root directory. There, dpkg runs the scripts without users and services.
func (r release) checkDeb(t *testing.T) {
	packages := map[string]string{} // of this machine's architecture
	for name, files := range packageFiles {
		for _, arch := range []string{"amd64", "arm64"} {
			if !r.has("linux_" + arch) {
				continue
			}
			file := filepath.Join(r.dir, fmt.Sprintf("%s_%s_%s.deb", name, r.version, arch))
			if arch == runtime.GOARCH {
				packages[name] = file
			}
			contents := command(t, "dpkg-deb", "--contents", file)
			for _, want := range files {
				if !strings.Contains(contents, "./"+want) {
					t.Errorf("%s lacks %s:\n%s", name, want, contents)
				}
			}
			if info := command(t, "dpkg-deb", "--info", file); !strings.Contains(info, "Package: "+name+"\n") ||
				!strings.Contains(info, "Architecture: "+arch) {
				t.Errorf("%s", info)
			}
		}
	}
	if conffiles := command(t, "dpkg-deb", "--info", packages["clusterpass-server"], "conffiles"); conffiles !=
		"/etc/clusterpass/clusterpass.env\n" {
		t.Errorf("the configuration files are %q", conffiles)
	}
	if os.Getuid() != 0 {
		t.Log("not installed: dpkg needs root to set the owner of files")
		return
	}
	r.installDeb(t, packages)
}

func (r release) installDeb(t *testing.T, packages map[string]string) {
	dir := t.TempDir()
	for _, d := range []string{"info", "updates", "triggers"} {
		if err := os.MkdirAll(filepath.Join(dir, "var/lib/dpkg", d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "var/lib/dpkg/status"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dpkg := func(args ...string) {
		t.Helper()
		options := []string{"--root=" + dir, "--force-script-chrootless", "--log=" + dir + "/log"}
		command(t, "dpkg", append(options, args...)...)
	}
	exists := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	}
	for range 2 { // the second time is an upgrade
		dpkg("--install", packages["clusterpass"], packages["clusterpass-server"])
	}
	for name, files := range packageFiles {
		for _, file := range files {
			if !exists(file) {
				t.Errorf("%s does not install %s", name, file)
			}
		}
	}
	env := filepath.Join(dir, "etc/clusterpass/clusterpass.env")
	if info, err := os.Stat(env); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	for _, program := range []string{"clusterpass", "clusterpass-local"} {
		installed, err := os.ReadFile(filepath.Join(dir, "usr/bin", program))
		if err != nil || !bytes.Equal(installed, r.program(t, program, "linux_"+runtime.GOARCH)) {
			t.Errorf("the installed %s differs from that of the archive, %v", program, err)
		}
	}
	unit, err := os.ReadFile(filepath.Join(dir, "usr/lib/systemd/system/clusterpass.service"))
	if err != nil || !strings.Contains(string(unit), "\nExecStart=clusterpass-local\n") {
		t.Errorf("%s%v", unit, err)
	}
	dpkg("--remove", "clusterpass-server", "clusterpass")
	if exists("usr/bin/clusterpass") || exists("usr/lib/systemd/system/clusterpass.service") {
		t.Error("programs or the unit remain after the removal")
	}
	if !exists("etc/clusterpass/clusterpass.env") {
		t.Error("the removal deletes the configuration; only purge may")
	}
	dpkg("--purge", "clusterpass-server")
	if exists("etc/clusterpass/clusterpass.env") {
		t.Error("the configuration remains after a purge")
	}
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, output)
	}
	return string(output)
}
