package published

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/shared/filelock"
)

// folder is the directory of the programs in an archive.
const folder = "controller-tools/envtest/"

const unpacking = ".unpacking"

// install unpacks the programs of the verified archive into the directory name of the cache.
func (d *download) install(ctx context.Context, name string) error {
	// A killed run may have left the first. The second lacks a program, or it would have been used.
	if err := errors.Join(d.cache.RemoveAll(unpacking), d.cache.RemoveAll(name)); err != nil {
		return err
	}
	if err := d.cache.Mkdir(unpacking, 0o755); err != nil {
		return err
	}
	if err := d.unpack(ctx); err != nil {
		return errors.Join(err, d.cache.RemoveAll(unpacking))
	}
	if err := errors.Join(filelock.SyncDir(d.cache, unpacking), d.cache.Rename(unpacking, name),
		filelock.SyncDir(d.cache, ".")); err != nil {
		return err
	}
	return d.removeParts()
}

func (d *download) unpack(ctx context.Context) error {
	part, err := d.cache.Open(d.part())
	if err != nil {
		return err
	}
	defer func() { _ = part.Close() }()
	compressed, err := gzip.NewReader(contextReader{ctx, part})
	if err != nil {
		return err
	}
	// Skipping a file of the archive decompresses it, so that these bytes count, too.
	most := int64(len(programs)+1) * d.limits.program
	left := &io.LimitedReader{R: compressed, N: most}
	var done []string
	for files := tar.NewReader(left); ; {
		header, err := files.Next()
		if left.N <= 0 {
			return fmt.Errorf("its files are larger than %d bytes", most)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		name, isIn := strings.CutPrefix(path.Clean(header.Name), folder)
		if !isIn || !slices.Contains(programs, name) {
			continue
		}
		switch {
		case header.Typeflag != tar.TypeReg:
			return fmt.Errorf("%s is not a regular file", header.Name)
		case slices.Contains(done, name):
			return fmt.Errorf("%s is there twice", header.Name)
		case header.Size > d.limits.program:
			return fmt.Errorf("%s has %d bytes, and may have %d", header.Name, header.Size, d.limits.program)
		}
		if err := d.write(name, files); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
		done = append(done, name)
	}
	for _, name := range programs {
		if !slices.Contains(done, name) {
			return fmt.Errorf("it lacks %s%s", folder, name)
		}
	}
	return context.Cause(ctx)
}

// write creates a program. Its bytes are on the disk afterwards, so that no later crash makes it incomplete.
func (d *download) write(name string, from io.Reader) error {
	to, err := d.cache.OpenFile(unpacking+"/"+name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Sync(), to.Close())
}
