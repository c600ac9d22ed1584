// Package images makes container images from programs, without a container engine. [All] lists the images, and [Build]
// makes one.
//
// Invariants:
//   - An image contains static programs, root certificates, licenses and empty directories. It has no shell.
//   - The user is a number and not root.
//   - Equal programs and an equal [Release] result in equal digests. No clock, user or host name reaches an image.
package images

import (
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	user   = 65532
	source = "https://github.com/clusterpass/clusterpass"
)

// Image describes an image.
type Image struct {
	Name, Title, Description string
	Programs                 []string // file names; the first is the entrypoint
	Env                      []string
	Ports                    []string
	Data                     string // volume that belongs to the user; "" for none
}

// All returns the images of the product.
func All() []Image {
	return []Image{
		{
			Name: "clusterpass", Title: "Clusterpass",
			Description: "The gateway on one server, and the command line clusterpass",
			Programs:    []string{"clusterpass-local", "clusterpass"},
			Env:         []string{"CLUSTERPASS_STORE=dir:/data"}, Ports: []string{"8443/tcp"}, Data: "/data",
		},
		{
			Name: "clusterpass-bridge", Title: "Clusterpass bridge",
			Description: "The bridge serves requests of the gateway that functions cannot serve",
			Programs:    []string{"websocket-bridge"},
			Env:         []string{"CLUSTERPASS_LISTEN=:8080", "CLUSTERPASS_ADMIN_LISTEN=:8081"},
			Ports:       []string{"8080/tcp", "8081/tcp", "8444/tcp"},
		},
		{
			Name: "clusterpass-agent", Title: "Clusterpass agent",
			Description: "The agent makes a private cluster reachable through the gateway",
			Programs:    []string{"clusterpass-agent"},
		},
	}
}

// Named returns the image with a name.
func Named(name string) (Image, error) {
	var names []string
	for _, i := range All() {
		if i.Name == name {
			return i, nil
		}
		names = append(names, i.Name)
	}
	return Image{}, fmt.Errorf("no image %q: want one of %s", name, strings.Join(names, ", "))
}

// Release is the origin of the programs, for annotations, and their licenses.
type Release struct {
	Version, Revision string
	Created           time.Time // time of the commit
	Licenses          []byte    // texts that must accompany the programs; required
}

// ReleaseOf returns the release that the Go command recorded in a program, without Licenses.
func ReleaseOf(program string) (Release, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return Release{}, fmt.Errorf("read the version of a program: %w", err)
	}
	r := Release{Version: "devel", Created: time.Unix(0, 0).UTC()}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		r.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			r.Revision = s.Value
		case "vcs.time":
			if r.Created, err = time.Parse(time.RFC3339, s.Value); err != nil {
				return Release{}, fmt.Errorf("read the version of %s: %w", program, err)
			}
		}
	}
	return r, nil
}

// Build returns an index with an image of i for each architecture. The programs are below the directory programs, in
// which {arch} stands for the architecture, as in dist/{arch}. Layers are files in the directory work, which must exist
// as long as the index.
func Build(i Image, arches []string, programs, work string, r Release) (v1.ImageIndex, error) {
	if len(arches) == 0 {
		return nil, errors.New("build an image: no architecture; name one, such as amd64")
	}
	if len(r.Licenses) == 0 {
		return nil, errors.New("build an image: no licenses of the programs; make licenses writes them")
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range arches {
		img, err := i.build(arch, programs, work, r)
		if err != nil {
			return nil, fmt.Errorf("build %s for %s: %w", i.Name, arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	return mutate.Annotations(index, i.annotations(r)).(v1.ImageIndex), nil
}

func (i Image) build(arch, programs, work string, r Release) (v1.Image, error) {
	base, err := i.baseLayer(work, r)
	if err != nil {
		return nil, err
	}
	program, err := i.programLayer(arch, strings.ReplaceAll(programs, "{arch}", arch), work)
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.ConfigFile(img, i.config(arch, r)); err != nil {
		return nil, err
	}
	created := v1.History{Created: v1.Time{Time: r.Created}}
	if img, err = mutate.Append(img, mutate.Addendum{Layer: base, History: created},
		mutate.Addendum{Layer: program, History: created}); err != nil {
		return nil, err
	}
	return mutate.Annotations(img, i.annotations(r)).(v1.Image), nil
}

func (i Image) config(arch string, r Release) *v1.ConfigFile {
	c := v1.Config{
		User: fmt.Sprintf("%d:%d", user, user), Entrypoint: []string{"/" + i.Programs[0]}, Env: i.Env,
		Labels: i.annotations(r), StopSignal: "SIGTERM", // drains, for CLUSTERPASS_DRAIN_TIMEOUT at most
	}
	if len(i.Ports) > 0 {
		c.ExposedPorts = map[string]struct{}{}
		for _, p := range i.Ports {
			c.ExposedPorts[p] = struct{}{}
		}
	}
	if i.Data != "" {
		c.Volumes = map[string]struct{}{i.Data: {}}
	}
	return &v1.ConfigFile{
		OS: "linux", Architecture: arch, Created: v1.Time{Time: r.Created}, RootFS: v1.RootFS{Type: "layers"}, Config: c,
	}
}

func (i Image) annotations(r Release) map[string]string {
	const prefix = "org.opencontainers.image."
	a := map[string]string{
		prefix + "title": i.Title, prefix + "description": i.Description, prefix + "licenses": "Apache-2.0",
		prefix + "source": source, prefix + "url": source, prefix + "documentation": source + "/tree/main/docs",
		prefix + "version": r.Version, prefix + "created": r.Created.UTC().Format(time.RFC3339),
	}
	if r.Revision != "" {
		a[prefix+"revision"] = r.Revision
	}
	return a
}

func (i Image) baseLayer(work string, r Release) (v1.Layer, error) {
	roots, err := Roots()
	if err != nil {
		return nil, err
	}
	entries := []entry{
		{name: "etc", mode: 0o755}, {name: "etc/ssl", mode: 0o755}, {name: "etc/ssl/certs", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: roots},
		{name: "licenses", mode: 0o755}, {name: "licenses/licenses.txt", mode: 0o644, content: r.Licenses},
	}
	if i.Data != "" {
		entries = append(entries, entry{name: strings.TrimPrefix(i.Data, "/"), mode: 0o700, owner: user})
	}
	return layer(filepath.Join(work, i.Name+"-base.tar"), entries)
}

func (i Image) programLayer(arch, dir, work string) (v1.Layer, error) {
	var entries []entry
	for _, name := range i.Programs {
		file := filepath.Join(dir, name)
		if err := checkProgram(file, arch); err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: path.Base(name), mode: 0o755, file: file})
	}
	return layer(filepath.Join(work, i.Name+"-"+arch+".tar"), entries)
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// checkProgram returns an error unless a program is for arch and static. The image has no dynamic linker.
func checkProgram(file, arch string) error {
	f, err := elf.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if want, ok := machines[arch]; !ok || f.Machine != want {
		return fmt.Errorf("%s is for %s; build it for %s", file, f.Machine, arch)
	}
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return fmt.Errorf("%s needs shared libraries; build it with CGO_ENABLED=0", file)
	}
	return nil
}

func layer(file string, entries []entry) (v1.Layer, error) {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if err = errors.Join(writeTar(out, entries), out.Close()); err != nil {
		return nil, err
	}
	return tarball.LayerFromFile(file, tarball.WithMediaType(types.OCILayer))
}
