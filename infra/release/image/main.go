// Command image builds one of the product's container images from compiled programs. It pushes the image to a registry,
// or writes it to a file for docker load. It needs no container engine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/clusterpass/clusterpass/infra/release/images"
)

const pushTimeout = 30 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

type options struct {
	image, arches, programs string
	licenses                string
	version, revision, date string
	push, save, tag         string
	username                string
	passwordStdin           bool
}

func (o *options) parse(args []string) error {
	f := flag.NewFlagSet("image", flag.ContinueOnError)
	f.StringVar(&o.image, "image", "", "name of the image: clusterpass, clusterpass-bridge or clusterpass-agent")
	f.StringVar(&o.arches, "arch", "amd64,arm64", "architectures")
	f.StringVar(&o.programs, "programs", "dist/{arch}", "directory of the programs for an architecture")
	f.StringVar(&o.licenses, "licenses", "../../dist/licenses.txt", "file of make licenses")
	f.StringVar(&o.version, "version", "", "version (default: the one that is recorded in the program)")
	f.StringVar(&o.revision, "revision", "", "hash of the commit (default: as above)")
	f.StringVar(&o.date, "date", "", "time of the commit in RFC 3339 (default: as above)")
	f.StringVar(&o.push, "push", "", "push the image as REGISTRY/REPOSITORY:TAG; several are separated by commas")
	f.StringVar(&o.save, "save", "", "write the image of one architecture to a file for docker load or podman load")
	f.StringVar(&o.tag, "tag", "", "name of the image in the file of --save, with a registry and a tag")
	f.StringVar(&o.username, "username", "", "user at the registry (default: the credentials of docker login)")
	f.BoolVar(&o.passwordStdin, "password-stdin", false, "read the password for --username from standard input")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unknown argument %q; see --help", f.Arg(0))
	}
	if (o.push == "") == (o.save == "") || o.save != "" && o.tag == "" {
		return errors.New("want --push REFERENCE, or --save FILE with --tag REFERENCE")
	}
	return nil
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	o := &options{}
	if err := o.parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	image, err := images.Named(o.image)
	if err != nil {
		return err
	}
	arches := strings.Split(o.arches, ",")
	release, err := o.release(image, arches[0])
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "clusterpass-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	index, err := images.Build(image, arches, o.programs, work, release)
	if err != nil {
		return err
	}
	if o.save != "" {
		return o.writeArchive(index, out)
	}
	auth, err := o.authenticator(in)
	if err != nil {
		return err
	}
	return push(ctx, strings.Split(o.push, ","), index, auth, out)
}

// release returns the release in the flags, and for those that are not set the one that is recorded in the program. It
// reads the licenses.
func (o *options) release(image images.Image, arch string) (images.Release, error) {
	r, err := images.ReleaseOf(filepath.Join(strings.ReplaceAll(o.programs, "{arch}", arch), image.Programs[0]))
	if err != nil {
		return r, err
	}
	if r.Licenses, err = os.ReadFile(o.licenses); err != nil {
		return r, fmt.Errorf("--licenses: %w; make licenses writes the file", err)
	}
	if o.version != "" {
		r.Version = o.version
	}
	if o.revision != "" {
		r.Revision = o.revision
	}
	if o.date != "" {
		if r.Created, err = time.Parse(time.RFC3339, o.date); err != nil {
			return r, fmt.Errorf("--date: %w", err)
		}
		r.Created = r.Created.UTC()
	}
	return r, nil
}

func (o *options) authenticator(in io.Reader) (authn.Keychain, error) {
	if o.username == "" {
		return authn.DefaultKeychain, nil
	}
	if !o.passwordStdin {
		return nil, errors.New("--username: the password is missing; add --password-stdin")
	}
	password, err := io.ReadAll(io.LimitReader(in, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("read the password: %w", err)
	}
	return fixed{&authn.Basic{Username: o.username, Password: strings.TrimRight(string(password), "\r\n")}}, nil
}

// fixed is a keychain with one credential.
type fixed struct{ authn.Authenticator }

func (f fixed) Resolve(authn.Resource) (authn.Authenticator, error) { return f.Authenticator, nil }

func push(ctx context.Context, references []string, index v1.ImageIndex, auth authn.Keychain, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	for _, text := range references {
		ref, err := name.ParseReference(text, name.StrictValidation)
		if err != nil {
			return fmt.Errorf("--push %s: %w", text, err)
		}
		if err := remote.WriteIndex(ref, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(auth)); err != nil {
			return fmt.Errorf("push %s: %w", text, err)
		}
		_, _ = fmt.Fprintf(out, "%s@%s\n", text, digest)
	}
	return nil
}

func (o *options) writeArchive(index v1.ImageIndex, out io.Writer) error {
	tag, err := name.NewTag(o.tag, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("--tag %s: %w", o.tag, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	if len(manifest.Manifests) != 1 {
		return errors.New("--save: an archive has one architecture; name it with --arch")
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		return err
	}
	if err := tarball.WriteToFile(o.save, tag, img); err != nil {
		return fmt.Errorf("write %s: %w", o.save, err)
	}
	_, err = fmt.Fprintf(out, "%s\n", o.save)
	return err
}
