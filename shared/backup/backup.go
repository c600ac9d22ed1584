// Package backup copies the stores of an installation into one encrypted file, and the file into other stores. The
// kinds of the stores may differ.
//
// [Save] writes a [Writer]. [Encrypt] and [Decrypt] are the encryption around it. [Verify] reads a file completely, and
// returns a [Backup] that can be restored.
//
// Invariants:
//   - The objects of a backup are the state of the store at one revision. Secrets are read after that state is listed.
//   - Keys, names, labels and values stay byte for byte. Revisions and versions of secrets are new.
//   - Both directions need memory for one page of objects and for the names of the secrets, not for the whole store.
//     Save also needs it for the changes that are written meanwhile.
//   - Restore writes nothing before it has authenticated and parsed the whole file.
//   - The file contains no private key of a key management service, and no key of the tunnel port.
package backup

import (
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/access"
	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	clusterpassv1alpha1 "github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	searchv1alpha1 "github.com/clusterpass/clusterpass/shared/api/search/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/passes"
)

// Prefixes are the prefixes of all objects that move, in the order in which Restore writes them. Revocations come
// first: a gateway that runs meanwhile must not accept a certificate that was revoked.
var Prefixes = []string{
	clusterpassv1alpha1.RevocationPrefix,
	resourceOf(clusterpassv1alpha1.InstallationKey),
	clusterpassv1alpha1.KeyPrefix,
	clusterpassv1alpha1.RecordingPolicyPrefix, // before the grants, so that no session escapes it
	access.RolePrefix,
	searchv1alpha1.Prefix,
	clusterv1alpha1.Prefix,
	clusterpassv1alpha1.AgentPrefix,
	access.BindingPrefix,
	clusterpassv1alpha1.PassPrefix,
}

// Left are the prefixes of objects that do not move, with the reason.
var Left = map[string]string{
	"audit/":               "an override of the audit log is about the sinks of one place",
	resourceOf(unfinished): "it is the mark of a restore",
}

// unfinished is the object that exists while a restore has not written everything.
const unfinished = "restore/unfinished"

func resourceOf(key string) string {
	resource, _, _ := strings.Cut(key, "/")
	return resource + "/"
}

// moves reports whether the object with a key belongs to a backup.
func moves(key string) bool {
	if key == passes.TunnelKeys {
		return false // each place has its own, and makes them when it needs them
	}
	for _, prefix := range Prefixes {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// Progress is called after each record that was copied, with the number of records so far. It may be nil.
type Progress func(objects, secrets int)

// Options are common to Save and Restore.
type Options struct {
	Progress Progress
	Now      func() time.Time // nil means time.Now
}

func (o Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

func (o Options) report(c Counts) {
	if o.Progress != nil {
		o.Progress(c.Objects, c.Secrets)
	}
}
