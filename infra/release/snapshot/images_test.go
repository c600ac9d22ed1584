package snapshot

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/clusterpass/clusterpass/infra/release/images"
)

// checkImages pushes the images of the release to a registry, as the workflow does, and pulls them.
func (r release) checkImages(t *testing.T) {
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(srv.Close)
	host := strings.TrimPrefix(srv.URL, "http://") + "/clusterpass"
	dir, err := filepath.Abs(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	var printed [2]string
	for i := range printed {
		cmd := exec.CommandContext(t.Context(), "scripts/push-images", dir, host, "actor", "v"+r.version)
		cmd.Dir, cmd.Stdin = root, strings.NewReader("password\n")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		output, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s%s", cmd, err, output, stderr.Bytes())
		}
		printed[i] = string(output)
	}
	if printed[0] != printed[1] {
		t.Errorf("the second time, the images are\n%sinstead of\n%s", printed[1], printed[0])
	}
	for _, image := range images.All() {
		reference := host + "/" + image.Name + ":v" + r.version
		tag, err := name.ParseReference(reference)
		if err != nil {
			t.Fatal(err)
		}
		index, err := remote.Index(tag)
		if err != nil {
			t.Fatal(err)
		}
		if digest, err := index.Digest(); err != nil || !strings.Contains(printed[0], reference+"@"+digest.String()+"\n") {
			t.Errorf("%s has the digest %s, %v; printed is\n%s", reference, digest, err, printed[0])
		}
		r.checkIndex(t, index, image)
	}
	if strings.Contains(printed[0], ":latest") {
		t.Errorf("a version that is no release becomes the latest:\n%s", printed[0])
	}
}

func (r release) checkIndex(t *testing.T, index v1.ImageIndex, image images.Image) {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		platform := m.Platform.OS + "_" + m.Platform.Architecture
		platforms = append(platforms, platform)
		img, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		for label, want := range map[string]string{"version": "v" + r.version, "revision": r.revision, "created": r.date} {
			if got := config.Config.Labels["org.opencontainers.image."+label]; got != want {
				t.Errorf("%s for %s has the %s %q, want %q", image.Name, platform, label, got, want)
			}
		}
		files := filesOf(t, img)
		for _, program := range image.Programs {
			if !bytes.Equal(files[program], r.program(t, program, platform)) {
				t.Errorf("%s for %s has another program %s than the release", image.Name, platform, program)
			}
		}
		if !bytes.Contains(files["licenses/licenses.txt"], []byte("k8s.io/client-go")) {
			t.Errorf("%s for %s has no licenses of its dependencies", image.Name, platform)
		}
	}
	want := "[linux_amd64 linux_arm64]"
	if r.single {
		want = "[linux_amd64]"
	}
	if got := fmt.Sprint(platforms); got != want {
		t.Errorf("%s is for %s, want %s", image.Name, got, want)
	}
}

func filesOf(t *testing.T, img v1.Image) map[string][]byte {
	t.Helper()
	content, files := mutate.Extract(img), map[string][]byte{}
	defer func() { _ = content.Close() }()
	for tr := tar.NewReader(content); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
	}
}
