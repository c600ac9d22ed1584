package images

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// entry is a file, or a directory if it has neither content nor file.
type entry struct {
	name    string // without a leading slash
	mode    int64
	owner   int
	content []byte
	file    string // its content is copied
}

// writeTar writes entries in their order, with a fixed time.
func writeTar(w io.Writer, entries []entry) error {
	tw := tar.NewWriter(w)
	for _, e := range entries {
		if err := e.write(tw); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return tw.Close()
}

func (e entry) write(tw *tar.Writer) error {
	h := &tar.Header{
		Name: e.name, Mode: e.mode, Uid: e.owner, Gid: e.owner, ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg,
		Size: int64(len(e.content)), Format: tar.FormatUSTAR,
	}
	var content io.Reader = bytes.NewReader(e.content)
	if e.file != "" {
		f, err := os.Open(e.file)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		h.Size, content = info.Size(), f
	} else if e.content == nil {
		h.Name, h.Typeflag = e.name+"/", tar.TypeDir
	}
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.Copy(tw, content)
	return err
}

// Roots returns Mozilla's root certificates as PEM, from a pinned module. A root that Mozilla trusts only for older
// certificates is omitted, since PEM cannot express the date.
func Roots() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		c, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			return nil, fmt.Errorf("parse a root certificate: %w", err)
		}
		_, _ = fmt.Fprintf(&out, "# %s\n", c.Subject)
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
