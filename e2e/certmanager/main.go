// cert-manager's own controllers, as far as Certificates of a CA need them: what issues, renews and says
// when a certificate is ready, and the issuers "ca" and "selfSigned". Its command is in a Go module that is
// not published; the controllers are in one that is.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	"github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	"github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "whose API server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:    *kubeconfig,
		IssuerOptions: controller.IssuerOptions{ClusterResourceNamespace: "cert-manager"},
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	var running []controller.Interface
	for _, name := range []string{
		issuers.ControllerName, clusterissuers.ControllerName,
		approver.ControllerName, ca.CRControllerName, selfsigned.CRControllerName,
		issuing.ControllerName, keymanager.ControllerName, readiness.ControllerName,
		requestmanager.ControllerName, revisionmanager.ControllerName, trigger.ControllerName,
	} {
		made, err := controller.Known()[name](factory)
		if err != nil {
			log.Fatalf("%s: %v", name, err)
		}
		running = append(running, made)
	}
	shared, err := factory.Build()
	if err != nil {
		log.Fatal(err)
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	var group sync.WaitGroup
	for _, each := range running {
		group.Go(func() {
			if err := each.Run(5, ctx); err != nil {
				log.Fatal(err)
			}
		})
	}
	group.Wait()
}
