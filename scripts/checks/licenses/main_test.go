package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLicensesOfTheProduct fails if a release would contain code that must not be distributed.
func TestLicensesOfTheProduct(t *testing.T) {
	var report bytes.Buffer
	if err := run(t.Context(), "../../..", true, &report); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"k8s.io/client-go v", ": Apache-2.0\n", "==== github.com/spf13/cobra v",
		"Redistributions in binary form",
		"github.com/clusterpass/clusterpass: Apache-2.0\n", "==== github.com/clusterpass/clusterpass, LICENSE\n",
		"\nstd go", ", internal/sync/singleflight/LICENSE\n", // below the module's directory
		"==== github.com/aws/aws-sdk-go-v2 v", ", NOTICE.txt\n", "golang.org/x/crypto/x509roots/fallback v"} {
		if !strings.Contains(report.String(), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
}

// TestRefusedLicenses fails if a module without a license, or with a forbidden one, is not noticed.
func TestRefusedLicenses(t *testing.T) {
	agpl := "GNU AFFERO GENERAL PUBLIC LICENSE\nVersion 3, 19 November 2007\n\nEveryone is permitted to copy."
	for _, tt := range []struct{ name, file, text, want string }{
		{"no file", "README", "hello", "it has no license"},
		{"unknown", "LICENSE", "You may do what you want, except on Mondays.", "is unknown"},
		{"forbidden", "COPYING.txt", agpl, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, tt.file), []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := (&module{Dir: dir}).read(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}
