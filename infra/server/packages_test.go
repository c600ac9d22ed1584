package server

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPackageScripts fails if an upgrade stops the service, or if a removal leaves it running. It also fails if a
// package cannot be installed where systemd does not run. dpkg and rpm pass the arguments.
func TestPackageScripts(t *testing.T) {
	create := "useradd --system --user-group --home-dir /var/lib/clusterpass --shell /usr/sbin/nologin clusterpass"
	const reload, restart = "systemctl daemon-reload", "systemctl try-restart clusterpass.service"
	const stop = "systemctl disable --now clusterpass.service"
	for _, tt := range []struct {
		name, script, argument  string
		hasUser, noSystemd, dir bool
		want                    []string
	}{
		{name: "install a deb", script: "postinstall", argument: "configure", want: []string{create, reload, restart}},
		{name: "install an rpm", script: "postinstall", argument: "1", want: []string{create, reload, restart}},
		{name: "upgrade", script: "postinstall", argument: "2", hasUser: true, want: []string{reload, restart}},
		{name: "install into a container", script: "postinstall", argument: "configure", noSystemd: true,
			want: []string{create}},
		{name: "install into another directory", script: "postinstall", argument: "configure", dir: true},
		{name: "before the removal of a deb", script: "preremove", argument: "remove", want: []string{stop}},
		{name: "before the removal of an rpm", script: "preremove", argument: "0", want: []string{stop}},
		{name: "before an upgrade of a deb", script: "preremove", argument: "upgrade"},
		{name: "before an upgrade of an rpm", script: "preremove", argument: "1"},
		{name: "before a removal in a container", script: "preremove", argument: "remove", noSystemd: true},
		{name: "before a removal in another directory", script: "preremove", argument: "remove", dir: true},
		{name: "after a removal", script: "postremove", argument: "remove", want: []string{reload}},
		{name: "after a removal in a container", script: "postremove", argument: "0", noSystemd: true},
		{name: "after a removal in another directory", script: "postremove", argument: "purge", dir: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			script, err := os.ReadFile("../release/packages/" + tt.script)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			calls, systemd := filepath.Join(dir, "calls"), filepath.Join(dir, "systemd")
			if !tt.noSystemd {
				err = os.Mkdir(systemd, 0o700)
			}
			for _, name := range []string{"getent", "useradd", "systemctl"} {
				text := "echo \"" + name + " $*\" >> \"" + calls + "\"\n"
				if name == "getent" {
					text = map[bool]string{true: "exit 0\n", false: "exit 2\n"}[tt.hasUser]
				}
				err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o700))
			}
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "sh", "-c",
				strings.ReplaceAll(string(script), "/run/systemd/system", systemd), tt.script, tt.argument)
			cmd.Env = []string{"PATH=" + dir}
			if tt.dir {
				cmd.Env = append(cmd.Env, "DPKG_ROOT="+dir)
			}
			if output, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
			got, err := os.ReadFile(calls)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			if lines := strings.Split(strings.TrimSpace(string(got)), "\n"); !slices.Equal(lines, tt.want) &&
				(len(got) > 0 || len(tt.want) > 0) {
				t.Errorf("it calls %q, want %q", lines, tt.want)
			}
		})
	}
}
