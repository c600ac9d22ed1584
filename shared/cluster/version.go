package cluster

import (
	"errors"
	"strings"
)

const maxVersion = 64 // bytes of a Kubernetes version; those of distributions have some 30

var errVersion = errors.New("its /version has a gitVersion that is over 64 bytes long or not printable ASCII")

// ServerVersion returns the Kubernetes version of a member, such as v1.36.3. get reads the document at /version into
// out. The version is stored and printed, so one that is too long or contains control characters is an error.
func ServerVersion(get func(out any) error) (string, error) {
	var document struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := get(&document); err != nil {
		return "", err
	}
	version := document.GitVersion
	if len(version) > maxVersion || strings.ContainsFunc(version, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", errVersion
	}
	return version, nil
}
