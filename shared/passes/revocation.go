package passes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"sync"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
)

// Revocation names a certificate to revoke. User and Reason may be empty.
type Revocation struct{ Serial, User, Reason string }

// openSSLSerial matches serial=0A1B of openssl x509 -serial, and "Serial Number: 0a:1b" or "2587 (0xa1b)" of -text. The
// hexadecimal digits alone match, too.
var openSSLSerial = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)^\s*(?:serial\s*=|serial number\s*:)?\s*(?:\d+ \()?(?:0x)?([0-9a-f:]+)\)?\s*$`)
})

// parseSerial returns a serial number in the format of Serial, from text that openssl prints.
func parseSerial(text string) (string, error) {
	if match := openSSLSerial().FindStringSubmatch(text); match != nil {
		n, ok := new(big.Int).SetString(strings.ReplaceAll(match[1], ":", ""), 16)
		if ok && n.Sign() > 0 && n.BitLen() <= 160 {
			return n.Text(16), nil
		}
	}
	return "", fmt.Errorf("serial number %q: want hexadecimal digits, as openssl x509 -serial prints them", text)
}

// RevokeCertificate accepts a serial number as openssl prints it, and returns it in the format of Serial. A second call
// for a certificate has no effect.
func (i *Issuer) RevokeCertificate(ctx context.Context, r Revocation) (string, error) {
	serial, err := parseSerial(r.Serial)
	if err != nil {
		return "", err
	}
	value, err := json.Marshal(&v1alpha1.Revocation{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Revocation"},
		ObjectMeta: metav1.ObjectMeta{Name: serial, UID: types.UID(uuid.NewString()),
			CreationTimestamp: metav1.NewTime(i.now()).Rfc3339Copy()},
		Spec: v1alpha1.RevocationSpec{User: r.User, Reason: r.Reason},
	})
	if err != nil {
		return "", err
	}
	if _, err = i.Objects.Create(ctx, v1alpha1.RevocationPrefix+serial, value); errors.Is(err, objects.ErrExists) {
		err = nil
	}
	return serial, err
}

// Revocations lists the revoked certificates by serial number. It calls onInvalid for each revocation that cannot be
// decoded, which still revokes its certificate.
func (i *Issuer) Revocations(
	ctx context.Context, onInvalid func(serial string, err error),
) ([]v1alpha1.Revocation, error) {
	return list(ctx, i.Objects, v1alpha1.RevocationPrefix, onInvalid,
		func(r *v1alpha1.Revocation, serial string) { r.Name = serial })
}
