/** The charts of jobs: the parts are in `components/charts`, because Compare shows the same. */
export { Charts } from "@/components/charts/Charts";
