package main

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/pki"
)

func (a *app) cert() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cert", Short: "Create the CA of client certificates, and revoke certificates", Args: cobra.NoArgs, RunE: help,
	}
	cmd.AddCommand(certCA(), a.certRevoke(), a.certList())
	return cmd
}

func certCA() *cobra.Command {
	return &cobra.Command{
		Use: "ca FILE", Short: "Create the CA of client certificates, if missing, and print its certificate in base64",
		Args: oneArg,
		Long: `Create the CA of client certificates: certificate and key in FILE. The name must end in .pem, and only you can
read the file. An existing CA is kept. The certificate is printed as base64 in one line, for
CLUSTERPASS_CLIENT_CA and for the parameter ClientCA on AWS.

Anyone with the file can act as any user of the gateway. The gateway needs the key only to issue passes in the
form of certificates through kubectl. To store the key there, run: clusterpass init --client-ca FILE`,
		Example: `  clusterpass cert ca client-ca.pem
  clusterpass pass create me --user me --form certificate --ca client-ca.pem`,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, ok := strings.CutSuffix(filepath.Base(args[0]), ".pem")
			if !ok || name == "" {
				return fmt.Errorf("%q: want the name of a file that ends in .pem", args[0])
			}
			ca, err := pki.LoadCA(filepath.Dir(args[0]), name)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), base64.StdEncoding.EncodeToString(ca.PEM()))
			return err
		},
	}
}

func (a *app) certRevoke() *cobra.Command {
	var file, reason string
	cmd := &cobra.Command{
		Use:   "revoke [SERIAL]",
		Short: "Revoke a client certificate of the gateway's CA, and end its open streams",
		Long: `Revoke a client certificate of the gateway's CA. Name its serial number in hexadecimal digits, as printed by
openssl x509 -serial or -text, or a file with the certificate in PEM or in a kubeconfig.

A certificate that is a pass also ends with its pass: clusterpass pass revoke.`,
		Example: `  clusterpass cert revoke serial=4B1F…
  clusterpass cert revoke --file lost.kubeconfig --reason "laptop stolen"`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			rev := passes.Revocation{Reason: reason}
			switch {
			case len(args) == 1 && file == "":
				rev.Serial = args[0]
			case len(args) == 0 && file != "":
				data, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				cert, err := certificateIn(data)
				if err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
				rev.Serial, rev.User = passes.Serial(cert), cert.Subject.CommonName
			default:
				return errors.New("name the certificate: its serial number, or a file with --file")
			}
			issuer, err := a.issuer(cmd.Context())
			if err != nil {
				return err
			}
			serial, err := issuer.RevokeCertificate(cmd.Context(), rev)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "certificate %s is revoked; all gateways refuse it within %s\n",
				serial, revocationTime)
			return err
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "file with the certificate: PEM, or a kubeconfig")
	cmd.Flags().StringVar(&reason, "reason", "", "reason, for the record")
	return cmd
}

func (a *app) certList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the revoked certificates", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			issuer, err := a.issuer(cmd.Context())
			if err != nil {
				return err
			}
			all, err := issuer.Revocations(cmd.Context(), func(serial string, err error) {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "warning: certificate %s is revoked, but the record cannot be decoded: %v\n",
					serial, err)
			})
			if err != nil {
				return err
			}
			tw := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
			_, _ = fmt.Fprintln(tw, "SERIAL\tUSER\tREVOKED\tREASON")
			for _, r := range all {
				_, _ = fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", r.Name, r.Spec.User, r.CreationTimestamp.UTC().Format(time.RFC3339),
					r.Spec.Reason)
			}
			return tw.Flush()
		},
	}
}

func certificateIn(data []byte) (*x509.Certificate, error) {
	if kc, err := clientcmd.Load(data); err == nil && len(kc.AuthInfos) > 0 {
		for _, user := range kc.AuthInfos { // with several users the choice would be ambiguous
			data = user.ClientCertificateData
		}
		if len(kc.AuthInfos) > 1 {
			return nil, errors.New("it has several users; give the serial number instead")
		}
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("it contains no certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}
