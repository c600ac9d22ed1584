package published

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// archive is one file of a release.
type archive struct {
	version string // such as v1.36.2
	name    string // file name
	url     string // https
	sum     []byte // SHA-512
}

// findArchive returns the archive of the wanted release for this platform.
func findArchive(
	ctx context.Context, client *http.Client, index, wanted string, limits limits,
) (archive, error) {
	if err := checkURL(index); err != nil {
		return archive{}, fmt.Errorf("the index of releases: %w", err)
	}
	text, err := readIndex(ctx, client, index, limits)
	if err != nil {
		return archive{}, fmt.Errorf("read %s: %w", index, err)
	}
	found, err := parseIndex(text, wanted)
	if err != nil {
		return archive{}, fmt.Errorf("%s: %w", index, err)
	}
	return found, nil
}

func readIndex(ctx context.Context, client *http.Client, url string, limits limits) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limits.indexTime, fmt.Errorf("not complete after %v", limits.indexTime))
	defer cancel()
	resp, err := get(ctx, client, url, 0)
	if err != nil {
		return nil, cause(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, limits.index+1))
	if err != nil {
		return nil, cause(ctx, err)
	}
	if int64(len(text)) > limits.index {
		return nil, fmt.Errorf("it is larger than %d bytes", limits.index)
	}
	return text, nil
}

func parseIndex(text []byte, wanted string) (archive, error) {
	var index struct {
		Releases map[string]map[string]struct {
			Hash     string `json:"hash"`
			SelfLink string `json:"selfLink"`
		} `json:"releases"`
	}
	if err := yaml.Unmarshal(text, &index); err != nil {
		return archive{}, err
	}
	newest, found := -1, archive{}
	for version, files := range index.Releases {
		patch, ok := patchOf(version, wanted)
		name := "envtest-" + version + platform() + ".tar.gz"
		file, isThere := files[name]
		if !ok || !isThere || patch <= newest {
			continue
		}
		sum, err := hex.DecodeString(file.Hash)
		if err != nil || len(sum) != sumSize {
			return archive{}, fmt.Errorf("%s: its hash is not a SHA-512 in hexadecimal", name)
		}
		if err := checkURL(file.SelfLink); err != nil {
			return archive{}, fmt.Errorf("%s: %w", name, err)
		}
		newest, found = patch, archive{version: version, name: name, url: file.SelfLink, sum: sum}
	}
	if newest < 0 {
		return archive{}, fmt.Errorf("no release of %s for %s", wanted, platform()[1:])
	}
	return found, nil
}

// patchOf returns the last number of a version such as v1.36.2. It returns false for a version that is not wanted, and
// for a release candidate.
func patchOf(version, wanted string) (int, bool) {
	dot := strings.LastIndex(version, ".")
	if dot < 0 || wanted != version && wanted != version[:dot] {
		return 0, false
	}
	rest := version[dot+1:]
	patch, err := strconv.Atoi(rest)
	return patch, err == nil && strconv.Itoa(patch) == rest && patch >= 0
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return err
	}
	if u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%q is not an https URL", text)
	}
	return nil
}
