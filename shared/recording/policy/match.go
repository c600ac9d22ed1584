package policy

import (
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/route"
)

func matchesAny(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool { return matches(glob, name) })
}

// matches reports whether a glob matches the whole name. * matches any characters, including / and :, and none.
func matches(glob, name string) bool {
	prefix, glob, isGlob := strings.Cut(glob, "*")
	name, hasPrefix := strings.CutPrefix(name, prefix)
	for isGlob && hasPrefix {
		part, rest, isMore := strings.Cut(glob, "*")
		if !isMore {
			return strings.HasSuffix(name, glob)
		}
		// The first occurrence leaves the most for the rest.
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name, glob = name[i+len(part):], rest
	}
	return hasPrefix && name == ""
}

// maxGlob is the maximum length of an entry in bytes.
const maxGlob = 512

// Validate returns the errors of a policy's spec.
func Validate(s *v1alpha1.RecordingPolicySpec) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	switch s.Level {
	case v1alpha1.Required, v1alpha1.BestEffort:
	case "":
		errs = append(errs, field.Required(spec.Child("level"), "required or bestEffort"))
	default:
		errs = append(errs, field.NotSupported(spec.Child("level"), s.Level,
			[]v1alpha1.RecordingLevel{v1alpha1.Required, v1alpha1.BestEffort}))
	}
	for _, list := range []struct {
		name  string
		globs []string
		check func(glob string) error
	}{
		{"clusters", s.Clusters, checkCluster},
		{"namespaces", s.Namespaces, checkNamespace},
		{"users", s.Users, nil},
		{"groups", s.Groups, nil},
	} {
		seen := map[string]bool{}
		for i, glob := range list.globs {
			at := spec.Child(list.name).Index(i)
			switch {
			case glob == "":
				errs = append(errs, field.Required(at, "a name, or * for all"))
			case len(glob) > maxGlob:
				errs = append(errs, field.TooLong(at, "", maxGlob))
			case seen[glob]:
				errs = append(errs, field.Duplicate(at, glob))
			case list.check != nil:
				if err := list.check(glob); err != nil {
					errs = append(errs, field.Invalid(at, glob, "matches no "+strings.TrimSuffix(list.name, "s")+": "+err.Error()))
				}
			}
			seen[glob] = true
		}
	}
	return errs
}

// A glob that no name can match would leave sessions unrecorded. A digit may be anywhere in a name, so it replaces each
// *.
const anyCharacter = "0"

func checkCluster(glob string) error {
	return route.ValidClusterName(strings.ReplaceAll(glob, "*", anyCharacter))
}

func checkNamespace(glob string) error {
	if problems := validation.IsDNS1123Label(strings.ReplaceAll(glob, "*", anyCharacter)); len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}
