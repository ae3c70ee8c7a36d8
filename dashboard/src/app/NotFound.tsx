import { Link } from "@tanstack/react-router";
import { Empty } from "@/components/Empty";
import { usePageTitle } from "@/components/usePageTitle";

export function NotFound() {
  usePageTitle("No such page");
  return (
    <Empty title="There is no such page" isPage>
      <p>
        <Link to="/jobs">All jobs</Link>
      </p>
    </Empty>
  );
}
